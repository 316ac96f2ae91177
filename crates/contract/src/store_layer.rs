//! Stores on top of another one: a layer implements only the operations that it
//! changes.

use crate::{
    Fd, NativeFd, ObjectId, ObjectStat, ReadPiece, Result, Store, StoreCapabilities, StoreIo, Timestamp,
    Usage, ZoneStatus,
};
use std::io::{IoSlice, IoSliceMut};

macro_rules! layer {
    ($($variant:ident: fn $name:ident($($arg:ident: $type:ty),*) -> $reply:ty, of $ids:expr;)*) => {
        /// An operation of a store.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum StoreOperation {
            $(
                #[doc = concat!("[`Store::", stringify!($name), "`].")]
                $variant,
            )*
        }

        /// A store on top of another one. Every operation goes to the store
        /// beneath, unless the layer has a method of its own for it, or refuses
        /// it [`before`](Self::before). A layer is a [`Store`] thereby.
        pub trait StoreLayer: Send + Sync {
            /// The store below.
            fn inner(&self) -> &dyn Store;

            /// The capabilities of this store: those of the one below.
            fn capabilities(&self) -> StoreCapabilities {
                self.inner().capabilities()
            }

            /// Called before an operation goes to the store below; an error is
            /// answered instead. `ids` are the objects of the operation.
            ///
            /// # Errors
            /// If the operation is to fail.
            fn before(&self, operation: StoreOperation, ids: &[ObjectId]) -> Result<()> {
                let _ = (operation, ids);
                Ok(())
            }

            /// [`Store::read_pieces`], piece by piece: one that reads in its own way
            /// reads these so too.
            ///
            /// # Errors
            /// Those of [`read_at`](Self::read_at).
            fn read_pieces(&self, id: ObjectId, pieces: &mut [ReadPiece<'_>], io: StoreIo) -> Result<()> {
                for piece in pieces {
                    piece.done = self.read_at(id, piece.offset, &mut [IoSliceMut::new(piece.buf)], io)?;
                }
                Ok(())
            }

            $(
                #[doc = concat!("[`Store::", stringify!($name), "`], by the store beneath.")]
                ///
                /// # Errors
                /// Those of [`before`](Self::before) and of the store.
                fn $name(&self, $($arg: $type),*) -> $reply {
                    self.before(StoreOperation::$variant, $ids)?;
                    self.inner().$name($($arg),*)
                }
            )*
        }

        impl<L: StoreLayer> Store for L {
            fn capabilities(&self) -> StoreCapabilities {
                StoreLayer::capabilities(self)
            }

            fn zones(&self) -> Option<ZoneStatus> {
                self.inner().zones()
            }

            fn read_pieces(&self, id: ObjectId, pieces: &mut [ReadPiece<'_>], io: StoreIo) -> Result<()> {
                StoreLayer::read_pieces(self, id, pieces, io)
            }

            $(
                fn $name(&self, $($arg: $type),*) -> $reply {
                    StoreLayer::$name(self, $($arg),*)
                }
            )*
        }
    };
}

layer! {
    Create: fn create(id: ObjectId) -> Result<()>, of &[id];
    Read: fn read_at(
        id: ObjectId, offset: u64, bufs: &mut [IoSliceMut<'_>], io: StoreIo
    ) -> Result<usize>, of &[id];
    Write: fn write_at(
        id: ObjectId, offset: u64, bufs: &[IoSlice<'_>], io: StoreIo
    ) -> Result<usize>, of &[id];
    Allocate: fn allocate(id: ObjectId, offset: u64, len: u64, keep_size: bool) -> Result<()>, of &[id];
    Punch: fn punch(id: ObjectId, offset: u64, len: u64) -> Result<()>, of &[id];
    Truncate: fn truncate(id: ObjectId, size: u64) -> Result<()>, of &[id];
    StartWriteBack: fn start_write_back(id: ObjectId, offset: u64, len: u64) -> Result<()>, of &[id];
    StartRead: fn start_read(id: ObjectId, offset: u64, len: u64) -> Result<()>, of &[id];
    Sync: fn sync(ids: &[ObjectId], data_only: bool) -> Result<()>, of ids;
    SyncAll: fn sync_all() -> Result<()>, of &[];
    Remove: fn remove(ids: &[ObjectId]) -> Result<()>, of ids;
    Stat: fn stat(id: ObjectId) -> Result<ObjectStat>, of &[id];
    SetAccessTime: fn set_access_time(id: ObjectId, time: Timestamp) -> Result<()>, of &[id];
    NextData: fn next_data(id: ObjectId, offset: u64) -> Result<Option<(u64, u64)>>, of &[id];
    Usage: fn usage() -> Result<Usage>, of &[];
    Label: fn label() -> Result<Option<Vec<u8>>>, of &[];
    SetLabel: fn set_label(label: &[u8]) -> Result<()>, of &[];
    LeaveNotice: fn leave_notice(text: &[u8]) -> Result<()>, of &[];
    Probe: fn probe(label: &[u8]) -> Result<()>, of &[];
    Clear: fn clear() -> Result<()>, of &[];
    List: fn list(visit: &mut dyn FnMut(ObjectId)) -> Result<()>, of &[];
    Directory: fn directory() -> Result<Fd>, of &[];
    Adopt: fn adopt(id: ObjectId, file: &dyn NativeFd) -> Result<()>, of &[id];
    ObjectFile: fn object_file(id: ObjectId) -> Result<Fd>, of &[id];
    ShareRange: fn share_range(
        id: ObjectId, offset: u64, from: &dyn NativeFd, from_offset: u64, len: u64
    ) -> Result<u64>, of &[id];
}
