//! Forwarding: a wrapping module implements only the operations that it
//! changes.

use crate::{
    Attr, Caller, DirSink, Entry, FallocateMode, FileSystem, FileSystemCapabilities, HandleId, InodeId,
    OpenRequest, Opened, RenameMode, Result, SeekTarget, SetAttr, StatFs, WriteFlags, XattrMode,
};
use std::ffi::OsStr;
use std::path::PathBuf;

macro_rules! forwarding {
    ($(
        $(#[$doc:meta])*
        $variant:ident: fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $reply:ty, $effect:ident;
    )*) => {
        /// A file system on top of another one. Every operation goes to the child as
        /// it came, unless the layer has a method of its own for it; that one reaches
        /// the child by [`child`](Self::child). A layer is a [`FileSystem`] thereby.
        ///
        /// ```
        /// # use braid_contract::{Caller, Errno, FileSystem, InodeId, Layer, Result};
        /// # use std::{ffi::OsStr, sync::Arc};
        /// /// Lets no directory be removed.
        /// struct KeepDirectories(Arc<dyn FileSystem>);
        ///
        /// impl Layer for KeepDirectories {
        ///     fn child(&self) -> &dyn FileSystem {
        ///         &*self.0
        ///     }
        ///
        ///     fn rmdir(&self, _: &Caller, _: InodeId, _: &OsStr) -> Result<()> {
        ///         Err(Errno::EPERM.into())
        ///     }
        /// }
        /// ```
        #[allow(clippy::too_many_arguments, clippy::extra_unused_lifetimes, reason = "rows are as they are")]
        pub trait Layer: Send + Sync {
            /// The file system below the layer.
            fn child(&self) -> &dyn FileSystem;

            /// The capabilities of this file system: those of its child.
            fn capabilities(&self) -> FileSystemCapabilities {
                self.child().capabilities()
            }

            $(
                #[doc = concat!("[`FileSystem::", stringify!($name), "`], by the child.")]
                fn $name<'a>(&self, $($arg: $type),*) -> $reply {
                    self.child().$name($($arg),*)
                }
            )*
        }

        #[allow(clippy::too_many_arguments, clippy::extra_unused_lifetimes, reason = "rows are as they are")]
        impl<L: Layer> FileSystem for L {
            fn capabilities(&self) -> FileSystemCapabilities {
                Layer::capabilities(self)
            }

            $(
                fn $name<'a>(&self, $($arg: $type),*) -> $reply {
                    Layer::$name(self, $($arg),*)
                }
            )*
        }
    };
}

operations!(forwarding);
