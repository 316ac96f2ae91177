//! Keys and values of a directory. Bytes of values follow the line of a message, as many
//! as it says.

use serde::{Deserialize, Serialize};

/// A request about keys and values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KvRequest {
    /// The directory's path below the root of the file system.
    pub directory: String,
    /// The operation.
    pub operation: KvOperation,
}

/// An operation on keys and values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KvOperation {
    /// Reads a value.
    Get {
        /// Its key.
        key: Vec<u8>,
    },
    /// Gives a key the value that follows the request.
    Put {
        /// The key.
        key: Vec<u8>,
        /// Bytes of the value.
        bytes: u64,
        /// When it is put.
        #[serde(default)]
        when: KvWhen,
        /// Permission bits of a new value's file.
        mode: u16,
    },
    /// Removes a key.
    Delete {
        /// The key.
        key: Vec<u8>,
    },
    /// Reads a page of keys.
    Scan {
        /// The first key; empty: from the start.
        #[serde(default)]
        from: Vec<u8>,
        /// The first key that is not wanted any more.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<Vec<u8>>,
        /// The prefix of keys.
        #[serde(default)]
        prefix: Vec<u8>,
        /// The cursor that the page before had.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<Vec<u8>>,
        /// Most keys of the page.
        count: usize,
        /// Whether values are wanted too.
        #[serde(default)]
        values: bool,
    },
}

/// When a value is put.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KvWhen {
    /// In any case.
    #[default]
    Always,
    /// If the key is not there.
    Absent,
    /// If the key is there.
    Present,
}

/// The result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KvAnswer {
    /// Whether the key was there, or the value was put.
    pub done: bool,
    /// Bytes that follow: a value, or those of a page in its order.
    pub bytes: u64,
    /// Keys of a page.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<KvKey>,
    /// The cursor of the next page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Vec<u8>>,
}

/// A key of a page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KvKey {
    /// The key.
    pub key: Vec<u8>,
    /// Bytes of its value, if those were wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}
