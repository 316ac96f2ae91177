//! Operations as values: what travels in queues, and what a module sees that
//! treats all operations alike.

use crate::{
    Attr, Caller, DirSink, Entry, Errno, Error, FallocateMode, FileSystem, FileSystemCapabilities, HandleId,
    InodeId, OpenFlags, OpenRequest, Opened, RenameMode, Result, SeekTarget, SetAttr, StatFs, WriteFlags,
    XattrMode,
};
use std::ffi::OsStr;
use std::fmt;
use std::path::PathBuf;

/// A file system that answers all operations in one place.
///
/// [`Served`] makes a [`FileSystem`] of it. Where only some operations are
/// treated, [`Layer`](crate::Layer) is cheaper and shorter.
pub trait Service: Send + Sync {
    /// What this file system can do.
    fn capabilities(&self) -> FileSystemCapabilities;

    /// Carries the request out. The reply is of the same operation.
    fn call(&self, request: Request<'_>) -> Reply;
}

/// A [`Service`] as a [`FileSystem`].
#[derive(Clone, Copy, Debug)]
pub struct Served<S>(pub S);

/// What every reply can be made of.
trait Failing {
    fn failed(error: Error) -> Self;
}

impl<T> Failing for Result<T> {
    fn failed(error: Error) -> Self {
        Err(error)
    }
}

impl Failing for () {
    fn failed(_error: Error) -> Self {}
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

            /// The name in logs and metrics: that of the method.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($name),)*
                }
            }

            /// Whether data, names or attributes may be others afterwards.
            #[must_use]
            pub const fn changes(self) -> bool {
                match self {
                    $(Self::$variant => effect!($effect),)*
                }
            }

            /// The reply that tells of an error. [`Operation::Forget`] has none to tell:
            /// its reply is the usual one.
            #[must_use]
            pub fn failed(self, error: Error) -> Reply {
                match self {
                    $(Self::$variant => Reply::$variant(Failing::failed(error)),)*
                }
            }
        }

        /// An operation with its arguments, which are those of the method of the
        /// same name of [`FileSystem`]. Data stays where it is and is referred to.
        #[derive(Debug)]
        #[allow(missing_docs, reason = "the arguments are documented with the methods")]
        pub enum Request<'a> {
            $(
                #[doc = concat!("[`FileSystem::", stringify!($name), "`]")]
                $variant { $($arg: $type),* },
            )*
        }

        impl Request<'_> {
            /// The operation that is asked for.
            #[must_use]
            pub const fn operation(&self) -> Operation {
                match self {
                    $(Self::$variant { .. } => Operation::$variant,)*
                }
            }
        }

        /// What an operation answered.
        #[derive(Debug)]
        pub enum Reply {
            $(
                #[doc = concat!("The answer of [`FileSystem::", stringify!($name), "`].")]
                $variant($reply),
            )*
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
