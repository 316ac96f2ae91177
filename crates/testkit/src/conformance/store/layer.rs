//! Stores that refuse operations for which they lack the capability, so that
//! layers over them need not.

use braid_contract::{Errno, ObjectId, Result, Store, StoreCapabilities, StoreLayer, StoreOperation};

/// A store; an operation that needs a capability that it lacks is refused
/// without calling it.
pub struct Layered<S>(pub S);

impl<S: Store> StoreLayer for Layered<S> {
    fn inner(&self) -> &dyn Store {
        &self.0
    }

    fn before(&self, operation: StoreOperation, _ids: &[ObjectId]) -> Result<()> {
        let StoreCapabilities { access_times, allocate, punch, seek_data, native_files, .. } =
            self.0.capabilities();
        let has = match operation {
            StoreOperation::Allocate => allocate,
            StoreOperation::Punch => punch,
            StoreOperation::NextData => seek_data,
            StoreOperation::SetAccessTime => access_times,
            // Files that others may write to are no objects of a store that
            // looks at each write.
            StoreOperation::Directory
            | StoreOperation::Adopt
            | StoreOperation::ObjectFile
            | StoreOperation::ShareRange => native_files,
            _ => true,
        };
        if has { Ok(()) } else { Err(Errno::EOPNOTSUPP.into()) }
    }

    /// Removes the objects itself first, for a layer below that observes
    /// removals.
    fn clear(&self) -> Result<()> {
        let mut ids = Vec::new();
        self.0.list(&mut |id| ids.push(id))?;
        self.0.remove(&ids)?;
        self.0.clear()
    }
}
