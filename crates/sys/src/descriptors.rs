//! Descriptors from one process to another.

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Most descriptors in one message (the kernel takes 253).
const GROUP: usize = 200;

/// Passes descriptors by a UNIX socket, with one byte for each 200 of them.
///
/// # Errors
/// Those of the socket.
pub fn pass_descriptors(socket: impl AsFd, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    for group in descriptors.chunks(GROUP) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(GROUP))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(group));
        sendmsg(&socket, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL)?;
    }
    Ok(())
}

/// Receives `count` descriptors, which were passed as by [`pass_descriptors`].
///
/// # Errors
/// Those of the socket; `UnexpectedEof` if it was closed before.
pub fn receive_descriptors(socket: impl AsFd, count: usize) -> io::Result<Vec<OwnedFd>> {
    let mut descriptors = Vec::new();
    while descriptors.len() < count {
        let mut byte = [0];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(GROUP))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let read = rustix::io::retry_on_intr(|| {
            let bytes = &mut [IoSliceMut::new(&mut byte)];
            recvmsg(socket.as_fd(), bytes, &mut control, RecvFlags::CMSG_CLOEXEC)
        })?;
        let before = descriptors.len();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                descriptors.extend(fds);
            }
        }
        if read.bytes == 0 || descriptors.len() == before {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "descriptors are missing"));
        }
    }
    Ok(descriptors)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn more_than_a_message_takes_are_passed() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        let many = vec![file.as_fd(); GROUP + 1];
        pass_descriptors(&ours, &many).unwrap();
        drop(ours);
        assert_eq!(receive_descriptors(&theirs, many.len()).unwrap().len(), many.len());
        let missing = receive_descriptors(&theirs, 1).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::UnexpectedEof);
    }
}
