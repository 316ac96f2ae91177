//! Operations as bytes on a socket.

use braid_sdk::abi::{
    Answer, Answers, Attributes, Capabilities, Entries, Failure, Listed, Message, Numbers, Target,
};
use braid_sys::AlignedBuf;
use bytemuck::Pod;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Longest frame, in bytes. The kernel's largest write is far below.
const FRAME_MAX: u64 = 16 << 20;

/// Most parts of a frame.
const PARTS_MAX: usize = 7;

/// What a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(super) enum Kind {
    /// An operation: numbers, groups, name, new name, data, room (of the buffer, and whether
    /// entries are wanted).
    Call = 1,
    /// What can it do? With what the file system below can, if it is known.
    Capabilities,
    /// An entry of a directory: numbers, name.
    Entry,
    /// Whether there was room for it.
    Room,
    /// It was done: what that answers.
    Done,
    /// It was not: error number, words.
    Failed,
    /// Which module is it? A library whose version is of no interest answers nothing.
    Describe,
    /// Are these settings right?
    Check,
    /// Make the module with these settings.
    Create,
    /// The module's state.
    Export,
    /// Take over a state: version, bytes.
    Import,
    /// The file system will not be used any more.
    End,
}

const KINDS: [Kind; 12] = [
    Kind::Call,
    Kind::Capabilities,
    Kind::Entry,
    Kind::Room,
    Kind::Done,
    Kind::Failed,
    Kind::Describe,
    Kind::Check,
    Kind::Create,
    Kind::Export,
    Kind::Import,
    Kind::End,
];

/// What was received.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) kind: Kind,
    pub(super) parts: Vec<Vec<u8>>,
}

impl Frame {
    /// A part of bytes; empty if it was not sent.
    pub(super) fn bytes(&self, at: usize) -> &[u8] {
        self.parts.get(at).map_or(&[], Vec::as_slice)
    }

    /// A part of numbers.
    pub(super) fn get<T: Pod>(&self, at: usize) -> io::Result<T> {
        bytemuck::try_pod_read_unaligned(self.bytes(at)).map_err(|_| invalid())
    }
}

fn invalid() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "not what the conversation asks for")
}

/// One end of a conversation, which one thread uses at a time.
#[derive(Debug)]
pub(super) struct Pipe {
    socket: UnixStream,
    /// How long the other side may take in all for what it is asked.
    patience: Option<Duration>,
}

impl Pipe {
    pub(super) fn new(socket: UnixStream) -> Self {
        Self { socket, patience: None }
    }

    /// One that waits so long at most.
    pub(super) fn impatient(socket: UnixStream, patience: Duration) -> io::Result<Self> {
        // So often, it looks whether the time is up.
        socket.set_read_timeout(Some(patience / 10))?;
        socket.set_write_timeout(Some(patience / 10))?;
        Ok(Self { socket, patience: Some(patience) })
    }

    fn waiting(&self) -> Waiting<'_> {
        Waiting { socket: &self.socket, left: self.patience }
    }

    /// Sends what the other side waits for.
    pub(super) fn send(&self, kind: Kind, parts: &[&[u8]]) -> io::Result<()> {
        send(&mut self.waiting(), kind, parts)
    }

    pub(super) fn receive(&self) -> io::Result<Frame> {
        receive(&mut self.waiting())
    }

    /// Asks for something that needs nothing of this side meanwhile but `below`.
    pub(super) fn ask(
        &self,
        kind: Kind,
        parts: &[&[u8]],
        below: &dyn Target,
    ) -> io::Result<Result<Frame, Failure>> {
        let mut other = self.waiting();
        send(&mut other, kind, parts)?;
        converse(&mut other, below, None)
    }

    /// Has the other side carry an operation out. Meanwhile it may use `below`.
    pub(super) fn call(
        &self,
        message: Message<'_>,
        below: &dyn Target,
    ) -> io::Result<Result<Answer, Failure>> {
        let room = [message.buffer.len() as u64, u64::from(message.entries.is_some())];
        let parts: [&[u8]; 6] = [
            bytemuck::bytes_of(&message.numbers),
            bytemuck::cast_slice(message.groups),
            message.name,
            message.new_name,
            message.data,
            bytemuck::bytes_of(&room),
        ];
        let mut other = self.waiting();
        send(&mut other, Kind::Call, &parts)?;
        let frame = match converse(&mut other, below, message.entries)? {
            Ok(frame) => frame,
            Err(failure) => return Ok(Err(failure)),
        };
        let (answers, read) = (frame.get::<Answers>(0)?, frame.bytes(2));
        message.buffer.get_mut(..read.len()).ok_or_else(invalid)?.copy_from_slice(read);
        Ok(Ok(Answer { answers, descriptor: None, bytes: frame.bytes(1).to_owned() }))
    }

    /// Carries out the operation of a frame, and answers.
    pub(super) fn serve(&self, frame: &Frame, target: &dyn Target) -> io::Result<()> {
        serve(&mut self.waiting(), frame, target, &mut None)
    }

    pub(super) fn fail(&self, failure: &Failure) -> io::Result<()> {
        fail(&mut self.waiting(), failure)
    }
}

/// Serves the other side until it answers.
fn converse(
    other: &mut Waiting<'_>,
    below: &dyn Target,
    mut entries: Option<&mut dyn Entries>,
) -> io::Result<Result<Frame, Failure>> {
    loop {
        let frame = receive(other)?;
        match frame.kind {
            Kind::Done => return Ok(Ok(frame)),
            Kind::Failed => return Ok(Err(failure(&frame)?)),
            Kind::Call => serve(other, &frame, below, &mut entries)?,
            Kind::Capabilities => {
                send(other, Kind::Done, &[bytemuck::bytes_of(&below.capabilities())])?;
            }
            Kind::Entry => take(other, &frame, &mut entries)?,
            _ => return Err(invalid()),
        }
    }
}

/// Takes an entry that the other side has for `entries`.
fn take(other: &mut Waiting<'_>, frame: &Frame, entries: &mut Option<&mut dyn Entries>) -> io::Result<()> {
    let entries = entries.as_mut().ok_or_else(invalid)?;
    let [has_attributes, damaged, kind, _] = frame.get::<[u32; 4]>(1)?;
    let [ino, next_offset] = frame.get::<[u64; 2]>(2)?;
    let attributes = frame.get::<Attributes>(3)?;
    let room = entries.add(&Listed {
        ino,
        next_offset: next_offset.cast_signed(),
        name: frame.bytes(0),
        kind,
        attributes: (has_attributes != 0).then_some(attributes),
        damaged: damaged != 0,
    });
    send(other, Kind::Room, &[&[u8::from(room)]])
}

/// Carries out the operation of a frame, and answers. Entries of directories that it
/// yields may come back meanwhile, for `outer`.
fn serve(
    other: &mut Waiting<'_>,
    frame: &Frame,
    target: &dyn Target,
    outer: &mut Option<&mut dyn Entries>,
) -> io::Result<()> {
    let [room, wants_entries] = frame.get::<[u64; 2]>(5)?;
    if room > FRAME_MAX || !frame.bytes(1).len().is_multiple_of(4) {
        return Err(invalid());
    }
    let groups: Vec<u32> = frame.bytes(1).chunks_exact(4).map(bytemuck::pod_read_unaligned).collect();
    let mut buffer = AlignedBuf::default();
    let buffer = buffer.bytes(usize::try_from(room).map_err(|_| invalid())?);
    let mut entries = PipeEntries { other: &mut *other, outer, broken: None };
    let numbers = frame.get::<Numbers>(0)?;
    let result = target.call(Message {
        numbers,
        groups: &groups,
        name: frame.bytes(2),
        new_name: frame.bytes(3),
        data: frame.bytes(4),
        buffer: &mut *buffer,
        entries: (wants_entries != 0).then_some(&mut entries as &mut dyn Entries),
    });
    if let Some(error) = entries.broken {
        return Err(error);
    }
    match result {
        Ok(answer) => {
            // Only a read counts what is in the buffer.
            let count = if room == 0 { 0 } else { answer.answers.count };
            let read = buffer.get(..usize::try_from(count).unwrap_or(usize::MAX)).unwrap_or(buffer);
            send(other, Kind::Done, &[bytemuck::bytes_of(&answer.answers), &answer.bytes, read])
        }
        Err(failure) => fail(other, &failure),
    }
}

fn fail(other: &mut Waiting<'_>, failure: &Failure) -> io::Result<()> {
    send(other, Kind::Failed, &[bytemuck::bytes_of(&failure.errno), failure.why.as_bytes()])
}

fn failure(frame: &Frame) -> io::Result<Failure> {
    let errno = frame.get::<i32>(0)?;
    let errno = if (1..4096).contains(&errno) { errno } else { libc::EIO };
    Ok(Failure { errno, why: String::from_utf8_lossy(frame.bytes(1)).into_owned() })
}

/// The other side while it is asked for something.
struct Waiting<'a> {
    socket: &'a UnixStream,
    /// How long it may still take; what this side does meanwhile does not count.
    left: Option<Duration>,
}

impl Waiting<'_> {
    /// Does this until it is done, or the time is up.
    fn until_done<T>(&mut self, mut act: impl FnMut(&mut &UnixStream) -> io::Result<T>) -> io::Result<T> {
        loop {
            let begun = Instant::now();
            let done = act(&mut { self.socket });
            if let Some(left) = &mut self.left {
                *left = left.checked_sub(begun.elapsed()).ok_or(io::ErrorKind::TimedOut)?;
            }
            match done {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
        }
    }
}

impl Read for Waiting<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.until_done(|socket| socket.read(buffer))
    }
}

impl Write for Waiting<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.until_done(|socket| socket.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn send(other: &mut Waiting<'_>, kind: Kind, parts: &[&[u8]]) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(64 + parts.iter().map(|part| 8 + part.len()).sum::<usize>());
    bytes.extend_from_slice(&(kind as u32).to_le_bytes());
    bytes.extend_from_slice(&u32::try_from(parts.len()).unwrap_or(u32::MAX).to_le_bytes());
    for part in parts {
        bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
        bytes.extend_from_slice(part);
    }
    other.write_all(&bytes)
}

fn receive(other: &mut Waiting<'_>) -> io::Result<Frame> {
    let mut head = [0; 8];
    other.read_exact(&mut head)?;
    let [kind, count] = bytemuck::cast::<[u8; 8], [u32; 2]>(head).map(u32::from_le);
    let kind = KINDS.into_iter().find(|known| *known as u32 == kind).ok_or_else(invalid)?;
    if count as usize > PARTS_MAX {
        return Err(invalid());
    }
    let mut room = FRAME_MAX;
    let part = |_| {
        let mut len = [0; 8];
        other.read_exact(&mut len)?;
        let len = u64::from_le_bytes(len);
        room = room.checked_sub(len).ok_or_else(invalid)?;
        let mut bytes = Vec::new();
        (&mut *other).take(len).read_to_end(&mut bytes)?;
        if bytes.len() as u64 == len { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    };
    Ok(Frame { kind, parts: (0..count).map(part).collect::<io::Result<_>>()? })
}

/// Entries that go to the other side.
struct PipeEntries<'a, 'b, 'c> {
    other: &'a mut Waiting<'c>,
    outer: &'a mut Option<&'b mut dyn Entries>,
    broken: Option<io::Error>,
}

impl PipeEntries<'_, '_, '_> {
    fn try_to_add(&mut self, entry: &Listed<'_>) -> io::Result<bool> {
        let numbers = [u32::from(entry.attributes.is_some()), u32::from(entry.damaged), entry.kind, 0];
        let places = [entry.ino, entry.next_offset.cast_unsigned()];
        let attributes = entry.attributes.unwrap_or_default();
        let parts: [&[u8]; 4] = [
            entry.name,
            bytemuck::bytes_of(&numbers),
            bytemuck::bytes_of(&places),
            bytemuck::bytes_of(&attributes),
        ];
        send(self.other, Kind::Entry, &parts)?;
        loop {
            let frame = receive(self.other)?;
            match frame.kind {
                Kind::Room => return Ok(frame.bytes(0) == [1]),
                // The module passes the entry on, as it is or not.
                Kind::Entry => take(self.other, &frame, self.outer)?,
                _ => return Err(invalid()),
            }
        }
    }
}

impl Entries for PipeEntries<'_, '_, '_> {
    fn add(&mut self, entry: &Listed<'_>) -> bool {
        self.try_to_add(entry).unwrap_or_else(|error| {
            self.broken = Some(error);
            false
        })
    }
}

/// No file system: what is asked before there is one.
pub(super) struct Nothing;

impl Target for Nothing {
    fn call(&self, _: Message<'_>) -> Result<Answer, Failure> {
        Err(Failure { errno: libc::ENOSYS, why: "there is no file system below".into() })
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_contract::{FileSystem, Served};
    use braid_sdk::Below;
    use braid_testkit::conformance::file_system::{Fresh, Part, run};
    use braid_testkit::dir_fs::{Choice, DirFs};
    use std::sync::{Arc, Mutex};

    /// This side of a conversation.
    struct Near {
        pipe: Mutex<Pipe>,
        below: Below,
    }

    impl Target for Near {
        fn call(&self, message: Message<'_>) -> Result<Answer, Failure> {
            self.pipe.lock().unwrap().call(message, &self.below).unwrap()
        }

        fn capabilities(&self) -> Capabilities {
            self.below.capabilities()
        }
    }

    /// A module that passes all on.
    struct Far<'a>(&'a Pipe);

    impl Target for Far<'_> {
        fn call(&self, message: Message<'_>) -> Result<Answer, Failure> {
            self.0.call(message, &Nothing).unwrap()
        }

        fn capabilities(&self) -> Capabilities {
            Capabilities::default()
        }
    }

    fn through_a_pipe(fs: Arc<dyn FileSystem>) -> Arc<dyn FileSystem> {
        let (near, far) = UnixStream::pair().unwrap();
        std::thread::spawn(move || {
            let pipe = Pipe::new(far);
            while let Ok(frame) = pipe.receive() {
                pipe.serve(&frame, &Far(&pipe)).unwrap();
            }
        });
        let near = Near { pipe: Mutex::new(Pipe::new(near)), below: Below(fs) };
        Arc::new(Served(braid_sdk::Served(near)))
    }

    #[test]
    fn a_file_system_is_the_same_through_a_pipe() {
        let fresh = || {
            let dir = tempfile::tempdir_in("/var/tmp").unwrap();
            let fs = through_a_pipe(Arc::new(DirFs::new(dir.path(), Choice::Cached)));
            Fresh::new(fs, dir)
        };
        run("a module in a process of its own", &[Part::Namespace, Part::Data], &fresh).conclude();
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let (near, far) = UnixStream::pair().unwrap();
        let (near, far) = (Pipe::new(near), far);
        let refused = |bytes: &[&[u8]]| {
            bytes.iter().for_each(|bytes| (&far).write_all(bytes).unwrap());
            let frame = near.receive();
            frame.and_then(|frame| near.serve(&frame, &Nothing)).unwrap_err().kind()
        };
        let word = |number: u32| number.to_le_bytes();
        assert_eq!(refused(&[&word(99), &word(0)]), io::ErrorKind::InvalidData);
        assert_eq!(refused(&[&word(Kind::Call as u32), &word(8)]), io::ErrorKind::InvalidData);
        let long = (FRAME_MAX + 1).to_le_bytes();
        assert_eq!(refused(&[&word(Kind::Call as u32), &word(1), &long]), io::ErrorKind::InvalidData);
        // A call without its numbers.
        assert_eq!(refused(&[&word(Kind::Call as u32), &word(0)]), io::ErrorKind::InvalidData);
    }
}
