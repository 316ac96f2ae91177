//! Operations on objects that work with any store.

use braid_contract::{Errno, ObjectId, Result, Store};

/// Cuts an object that is longer than `size`; answers whether it was. One that
/// does not exist is not.
pub fn cut_object(store: &dyn Store, id: ObjectId, size: u64) -> Result<bool> {
    match store.stat(id) {
        Ok(stat) if stat.size > size => store.truncate(id, size).map(|()| true),
        Ok(_) => Ok(false),
        Err(error) if error.errno() == Errno::ENOENT => Ok(false),
        Err(error) => Err(error),
    }
}

/// The first stretch of data of an object at or after `offset`, as by
/// [`Store::next_data`]. Where the store can't distinguish data from holes,
/// everything below the object's size counts as data.
///
/// # Errors
/// Those of the store; `ENOENT` if there is no such object.
pub fn next_data(store: &dyn Store, id: ObjectId, offset: u64) -> Result<Option<(u64, u64)>> {
    if store.capabilities().seek_data {
        return store.next_data(id, offset);
    }
    let size = store.stat(id)?.size;
    Ok((offset < size).then_some((offset, size)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_contract::StoreIo;
    use braid_stores::memory::MemoryStore;
    use braid_testkit::conformance::store::AppendOnlyStore;
    use std::io::IoSlice;
    use std::sync::Arc;

    #[test]
    fn where_holes_are_not_known_all_below_the_size_is_data() {
        const A: ObjectId = ObjectId([1; 16]);
        for seek_data in [true, false] {
            let store = AppendOnlyStore::over(Arc::new(MemoryStore::new(1 << 20)), seek_data);
            assert_eq!(next_data(&store, A, 0).unwrap_err().errno(), Errno::ENOENT);
            store.create(A).unwrap();
            assert_eq!(next_data(&store, A, 0).unwrap(), None);
            store.write_at(A, 16 << 10, &[IoSlice::new(&[1; 4096])], StoreIo::default()).unwrap();
            store.truncate(A, 40 << 10).unwrap();
            let found = [0, 17 << 10, 30 << 10, 40 << 10].map(|at| next_data(&store, A, at).unwrap());
            let (end, size) = (20 << 10, 40 << 10);
            let wanted = match seek_data {
                true => [Some((16 << 10, end)), Some((17 << 10, end)), None, None],
                false => [Some((0, size)), Some((17 << 10, size)), Some((30 << 10, size)), None],
            };
            assert_eq!(found, wanted);
        }
    }
}
