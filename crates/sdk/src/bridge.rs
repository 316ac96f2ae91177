//! Operations as messages, and messages as operations: all from the table.

use crate::failure::{error_of, of_error};
use crate::places::{EntriesSink, Parts, Put, Slot, Take, caller_of, changes_of, place};
use crate::values::Answered;
use braid_contract::{
    Attr, Caller, DirSink, Entry, Errno, FallocateMode, FileSystem, HandleId, InodeId, OpenRequest, Opened,
    Operation, RenameMode, Reply, Request, Result, SeekTarget, SetAttr, StatFs, WriteFlags, XattrMode,
};
use braid_sys::module::{Answer, Failure, Message, Numbers};
use std::ffi::OsStr;
use std::path::PathBuf;

/// The answer of a method, and its form in the interface.
trait Replied: Sized {
    fn give(self) -> std::result::Result<Answer, Failure>;

    fn get(told: std::result::Result<Answer, Failure>) -> Self;
}

impl<T: Answered> Replied for Result<T> {
    fn give(self) -> std::result::Result<Answer, Failure> {
        let mut answer = Answer::default();
        self.map_err(|error| of_error(&error))?.give(&mut answer);
        Ok(answer)
    }

    fn get(told: std::result::Result<Answer, Failure>) -> Self {
        told.and_then(T::get).map_err(error_of)
    }
}

impl Replied for () {
    fn give(self) -> std::result::Result<Answer, Failure> {
        Ok(Answer::default())
    }

    fn get(_: std::result::Result<Answer, Failure>) {}
}

macro_rules! bridge {
    ($(
        $(#[$doc:meta])*
        $variant:ident: fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $reply:ty, $effect:ident;
    )*) => {
        /// The message of a request.
        pub(crate) fn message_of<'r: 'a, 'a>(request: Request<'r>, mut slot: Slot<'a>) -> Message<'a> {
            let operation = request.operation() as u32;
            let mut message = Message::new(Numbers { operation, ..Numbers::default() });
            match request {
                $(Request::$variant { $($arg),* } => {
                    $(<place::$arg as Put<'a, $type>>::put($arg, &mut message, &mut slot);)*
                })*
            }
            message
        }

        /// The reply to a request of this operation.
        pub(crate) fn reply_of(operation: Operation, told: std::result::Result<Answer, Failure>) -> Reply {
            match operation {
                $(Operation::$variant => Reply::$variant(<$reply as Replied>::get(told)),)*
            }
        }

        fn dispatch<'a>(
            fs: &dyn FileSystem,
            operation: Operation,
            mut parts: Parts<'a>,
        ) -> std::result::Result<Answer, Failure> {
            let parts = &mut parts;
            match operation {
                $(Operation::$variant => {
                    $(let $arg: $type = <place::$arg as Take<'a, $type>>::take(parts)?;)*
                    Replied::give(fs.$name($($arg),*))
                })*
            }
        }
    };
}

braid_contract::operations!(bridge);

/// Has a file system carry out the operation of a message.
pub(crate) fn carry_out(fs: &dyn FileSystem, message: Message<'_>) -> std::result::Result<Answer, Failure> {
    let operation = Operation::ALL.get(message.numbers.operation as usize).copied();
    let operation = operation.ok_or(Failure { errno: Errno::ENOSYS.0, why: "no such operation".into() })?;
    let (caller, changes) = (caller_of(&message), changes_of(&message.numbers)?);
    let Message { numbers, name, new_name, data, buffer, entries, .. } = message;
    let mut sink = entries.map(EntriesSink);
    let sink = sink.as_mut().map(|sink| sink as &mut dyn DirSink);
    let parts = Parts { numbers, caller: &caller, changes: &changes, name, new_name, data, buffer, sink };
    dispatch(fs, operation, parts)
}
