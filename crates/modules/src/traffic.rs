//! Shared by modules that look at the bytes that pass.

use braid_contract::{Reply, Request};

/// Bytes that are copied at a time, so that a copy is not one long operation.
pub(crate) const COPY_MAX: u64 = 4 << 20;

/// Has all reads and writes come this way, and copies in pieces.
pub(crate) fn keep_in_sight(request: &mut Request<'_>) {
    match request {
        Request::CopyRange { len, .. } => *len = COPY_MAX.min(*len),
        // The front end may have learned before that there is passthrough.
        Request::Open { request, .. }
        | Request::Create { request, .. }
        | Request::Tmpfile { request, .. } => {
            request.passthrough_allowed = false;
        }
        _ => {}
    }
}

/// The bytes that an operation moved; `None` of one that moves none, or failed.
pub(crate) fn moved(reply: &Reply) -> Option<u64> {
    match reply {
        Reply::Read(Ok(count)) | Reply::Write(Ok(count)) => Some(*count as u64),
        Reply::CopyRange(Ok(count)) => Some(*count),
        _ => None,
    }
}

/// A list of names, each ended by a NUL byte, without those that are hidden.
pub(crate) fn visible(names: &[u8], is_hidden: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let is_visible = |name: &&[u8]| !is_hidden(name.strip_suffix(b"\0").unwrap_or(name));
    names.split_inclusive(|byte| *byte == 0).filter(is_visible).flatten().copied().collect()
}
