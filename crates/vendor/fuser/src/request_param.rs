use ref_cast::RefCastCustom;
use ref_cast::ref_cast_custom;

use crate::ll;
use crate::ll::fuse_abi::fuse_in_header;

/// The bit of `unique` by which the kernel marks a request that it sends again.
pub(crate) const FUSE_UNIQUE_RESEND: u64 = 1 << 63;

/// FUSE request parameters.
#[derive(Debug, RefCastCustom)]
#[repr(transparent)]
pub struct Request {
    header: fuse_in_header,
}

impl Request {
    #[ref_cast_custom]
    pub(crate) fn ref_cast(header: &fuse_in_header) -> &Request;

    /// Returns the unique identifier of this request
    #[inline]
    pub fn unique(&self) -> ll::RequestId {
        ll::RequestId(self.header.unique)
    }

    /// Whether the kernel sent this request before, to a process that received it and did
    /// not answer ([`Notifier::resend`](crate::Notifier::resend)).
    #[inline]
    pub fn is_sent_again(&self) -> bool {
        self.header.unique & FUSE_UNIQUE_RESEND != 0
    }

    /// The identifier that this request has each time it is sent.
    #[inline]
    pub fn identifier(&self) -> u64 {
        self.header.unique & !FUSE_UNIQUE_RESEND
    }

    /// Returns the uid of this request
    #[inline]
    pub fn uid(&self) -> u32 {
        self.header.uid
    }

    /// Returns the gid of this request
    #[inline]
    pub fn gid(&self) -> u32 {
        self.header.gid
    }

    /// Returns the pid of this request
    #[inline]
    pub fn pid(&self) -> u32 {
        self.header.pid
    }
}
