//! Requests of a session: one each, or several where the data does not fit one slot.

use super::Session;
use crate::entries;
use crate::layout::NAME_MAX;
use braid_contract::{Errno, FileSystem, Operation, Served};
use braid_sdk::abi::{self, Answer, Capabilities, Failure, Message, Numbers, Target};
use std::sync::Arc;

impl Session {
    /// The session as a file system.
    #[must_use]
    pub fn file_system(self: &Arc<Self>) -> Arc<dyn FileSystem> {
        Arc::new(Served(braid_sdk::Served(Files(Arc::clone(self)))))
    }
}

/// A session as a file system.
pub(super) struct Files(pub(super) Arc<Session>);

impl Target for Files {
    fn call(&self, message: Message<'_>) -> Result<Answer, Failure> {
        let Self(this) = self;
        if message.name.len() > NAME_MAX || message.new_name.len() > NAME_MAX {
            return Err(Failure { errno: Errno::ENAMETOOLONG.0, why: String::new() });
        }
        let (most, operation) = (this.link.geometry.data, message.numbers.operation);
        if message.buffer.len() > most && operation == Operation::Read as u32 {
            return this.read_in_pieces(message);
        }
        if message.data.len() > most && operation == Operation::Write as u32 {
            return this.write_in_pieces(message);
        }
        if message.data.len() > most || message.buffer.len() > most {
            let why = format!("more than the {most} bytes of a slot of the session");
            return Err(Failure { errno: Errno::EOVERFLOW.0, why });
        }
        if operation == Operation::Forget as u32 {
            return this.queue().post(&this.link, &message).map(|()| Answer::default());
        }
        let lists = message.entries.is_some();
        let answer = this.queue().call(&this.link, message)?;
        if lists {
            this.take_back(&answer.bytes)?;
            return Ok(Answer { bytes: Vec::new(), ..answer });
        }
        Ok(answer)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { flags: abi::CAN_RENAME_OTHERWISE | abi::WANTS_FLUSH, ..Capabilities::default() }
    }
}

impl Session {
    /// Takes back lookups of entries for which there was no room.
    fn take_back(&self, entries: &[u8]) -> Result<(), Failure> {
        entries::looked_up(entries).try_for_each(|ino| {
            let numbers =
                Numbers { operation: Operation::Forget as u32, ino, count: 1, ..Numbers::default() };
            self.queue().post(&self.link, &Message::new(numbers))
        })
    }

    fn read_in_pieces(&self, message: Message<'_>) -> Result<Answer, Failure> {
        let mut answer = Answer::default();
        for piece in message.buffer.chunks_mut(self.link.geometry.data) {
            let mut numbers = message.numbers;
            numbers.offset += answer.answers.count;
            let wanted = piece.len() as u64;
            let read = self.queue().call(&self.link, Message { buffer: piece, ..Message::new(numbers) });
            match read {
                Ok(read) => answer.answers.count += read.answers.count.min(wanted),
                // The next call meets it again.
                Err(_) if answer.answers.count > 0 => break,
                Err(failure) => return Err(failure),
            }
            if !answer.answers.count.is_multiple_of(self.link.geometry.data as u64) {
                break;
            }
        }
        Ok(answer)
    }

    fn write_in_pieces(&self, message: Message<'_>) -> Result<Answer, Failure> {
        let mut answer = Answer::default();
        for piece in message.data.chunks(self.link.geometry.data) {
            let mut numbers = message.numbers;
            numbers.offset += answer.answers.count;
            match self.queue().call(&self.link, Message { data: piece, ..Message::new(numbers) }) {
                Ok(written) => {
                    answer.answers.count += written.answers.count;
                    if written.answers.count < piece.len() as u64 {
                        break;
                    }
                }
                Err(_) if answer.answers.count > 0 => break,
                Err(failure) => return Err(failure),
            }
        }
        Ok(answer)
    }
}
