//! Operations as values, for queues and for modules that treat all operations
//! alike.

use crate::{
    Attr, Caller, DirSink, Entry, Errno, Error, FallocateMode, FileSystem, FileSystemCapabilities, HandleId,
    InodeId, OpenRequest, Opened, RenameMode, Result, SeekTarget, SetAttr, StatFs, WriteFlags, XattrMode,
};
use std::ffi::OsStr;
use std::fmt;
use std::path::PathBuf;

/// A file system that answers all operations in one place.
///
/// [`Served`] makes a [`FileSystem`] of it. For modules that handle only some
/// operations, [`Layer`](crate::Layer) is cheaper and shorter.
pub trait Service: Send + Sync {
    /// The capabilities of this file system.
    fn capabilities(&self) -> FileSystemCapabilities;

    /// Carries the request out. The reply is of the same operation.
    fn call(&self, request: Request<'_>) -> Reply;
}

/// A [`Service`] as a [`FileSystem`].
#[derive(Clone, Copy, Debug)]
pub struct Served<S>(pub S);

/// Every type of reply can be made from an error.
trait Failing {
    fn failed(error: Error) -> Self;
    fn error(&self) -> Option<&Error>;
}

impl<T> Failing for Result<T> {
    fn failed(error: Error) -> Self {
        Err(error)
    }

    fn error(&self) -> Option<&Error> {
        self.as_ref().err()
    }
}

impl Failing for () {
    fn failed(_error: Error) -> Self {}

    fn error(&self) -> Option<&Error> {
        None
    }
}

macro_rules! requests {
    ($(
        $(#[$doc:meta])*
        $variant:ident: fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $reply:ty, $effect:ident;
    )*) => {
        /// The name of an operation of [`FileSystem`].
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Operation {
            $(
                #[doc = concat!("[`FileSystem::", stringify!($name), "`]")]
                $variant,
            )*
        }

        impl Operation {
            /// Every operation, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The name in logs and metrics: the method's.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($name),)*
                }
            }

            /// Whether data, names or attributes may change.
            #[must_use]
            pub const fn changes(self) -> bool {
                match self {
                    $(Self::$variant => effect!($effect),)*
                }
            }

            /// The reply with an error. That of [`Operation::Forget`] can't
            /// have one, and is the usual reply.
            #[must_use]
            pub fn failed(self, error: Error) -> Reply {
                match self {
                    $(Self::$variant => Reply::$variant(Failing::failed(error)),)*
                }
            }
        }

        /// An operation with its arguments, which are those of the method of
        /// the same name of [`FileSystem`]. Data is borrowed.
        #[derive(Debug)]
        #[allow(missing_docs, reason = "the arguments are documented with the methods")]
        pub enum Request<'a> {
            $(
                #[doc = concat!("[`FileSystem::", stringify!($name), "`]")]
                $variant { $($arg: $type),* },
            )*
        }

        impl Request<'_> {
            /// The operation of the request.
            #[must_use]
            pub const fn operation(&self) -> Operation {
                match self {
                    $(Self::$variant { .. } => Operation::$variant,)*
                }
            }
        }

        /// The answer of an operation.
        #[derive(Debug)]
        pub enum Reply {
            $(
                #[doc = concat!("The answer of [`FileSystem::", stringify!($name), "`].")]
                $variant($reply),
            )*
        }

        impl Reply {
            /// The error, if the operation failed.
            #[must_use]
            pub fn error(&self) -> Option<&Error> {
                match self {
                    $(Self::$variant(reply) => Failing::error(reply),)*
                }
            }
        }

        /// Carries a request out on a file system.
        pub fn dispatch(fs: &dyn FileSystem, request: Request<'_>) -> Reply {
            match request {
                $(Request::$variant { $($arg),* } => Reply::$variant(fs.$name($($arg),*)),)*
            }
        }

        #[allow(clippy::too_many_arguments, clippy::extra_unused_lifetimes, reason = "rows are as they are")]
        impl<S: Service> FileSystem for Served<S> {
            fn capabilities(&self) -> FileSystemCapabilities {
                self.0.capabilities()
            }

            $(
                fn $name<'a>(&self, $($arg: $type),*) -> $reply {
                    match self.0.call(Request::$variant { $($arg),* }) {
                        Reply::$variant(reply) => reply,
                        _ => Failing::failed(mismatch(Operation::$variant)),
                    }
                }
            )*
        }
    };
}

macro_rules! effect {
    (changes) => {
        true
    };
    (observes) => {
        false
    };
}

operations!(requests);

fn mismatch(operation: Operation) -> Error {
    Error::new(Errno::EIO, format!("{operation} was answered with the reply of another operation"))
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::time::Duration;

    /// Answers everything with the reply of a sync.
    struct Confused;

    impl Service for Confused {
        fn capabilities(&self) -> FileSystemCapabilities {
            FileSystemCapabilities {
                cache_ttl: Duration::ZERO,
                passthrough: false,
                rename_modes: false,
                posix_acl: false,
                flush_at_close: false,
                caller_groups: false,
                holds_up: false,
                writes_through: false,
            }
        }

        fn call(&self, _request: Request<'_>) -> Reply {
            Reply::Sync(Ok(()))
        }
    }

    #[test]
    fn a_reply_of_another_operation_is_an_error() {
        let fs = Served(Confused);
        assert!(fs.sync().is_ok());
        let error = fs.readlink(&Caller::root(), InodeId::ROOT).unwrap_err();
        assert_eq!(error.errno(), Errno::EIO);
        assert!(error.to_string().contains("readlink"), "{error}");
        // It can't fail.
        fs.forget(InodeId::ROOT, 1);
    }

    #[test]
    fn a_request_reaches_the_method_of_its_name_and_comes_back_as_a_reply_of_it() {
        let reply = dispatch(&Served(Confused), Request::Release { handle: HandleId(1) });
        assert!(matches!(reply, Reply::Release(Err(_))), "{reply:?}");
        assert_eq!(reply.error().map(Error::errno), Some(Errno::EIO));
        assert!(Reply::Sync(Ok(())).error().is_none() && Reply::Forget(()).error().is_none());
        assert!(matches!(dispatch(&Served(Confused), Request::Sync {}), Reply::Sync(Ok(()))));
    }

    #[test]
    fn operations_have_names_of_their_own_and_say_what_they_change() {
        let names: HashSet<&str> = Operation::ALL.iter().map(|operation| operation.name()).collect();
        assert_eq!(names.len(), Operation::ALL.len());
        for (operation, changes) in [
            (Operation::Lookup, false),
            (Operation::Open, false),
            (Operation::Fsync, false),
            (Operation::Create, true),
            (Operation::CopyRange, true),
            (Operation::Removexattr, true),
        ] {
            assert_eq!(operation.changes(), changes, "{operation}");
        }
        assert_eq!(Operation::CopyRange.to_string(), "copy_range");
    }
}
