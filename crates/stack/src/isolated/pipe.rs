//! Operations as bytes on a socket.

use super::frame::{
    FRAME_MAX, Frame, Kind, Patience, Waiting, answer, fail, failure, fits, invalid, receive, send,
};
use braid_sdk::abi::{
    Answer, Answers, Attributes, Capabilities, Entries, Failure, Listed, Message, Numbers, Target,
};
use braid_sys::AlignedBuf;
use std::io;
use std::os::unix::net::UnixStream;

/// One end of a conversation, which one thread uses at a time.
#[derive(Debug)]
pub(super) struct Pipe {
    socket: UnixStream,
    patience: Option<Patience>,
}

impl Pipe {
    pub(super) fn new(socket: UnixStream) -> Self {
        Self { socket, patience: None }
    }

    /// One that waits so long at most.
    pub(super) fn impatient(socket: UnixStream, patience: Patience) -> io::Result<Self> {
        // So often, it looks whether the time is up.
        socket.set_read_timeout(Some(patience.alone / 10))?;
        socket.set_write_timeout(Some(patience.alone / 10))?;
        Ok(Self { socket, patience: Some(patience) })
    }

    fn waiting(&self) -> Waiting<'_> {
        Waiting::new(&self.socket, self.patience)
    }

    /// Answers a frame that is not an operation.
    pub(super) fn answer(&self, parts: &[&[u8]]) -> io::Result<()> {
        answer(&mut self.waiting(), parts)
    }

    pub(super) fn receive(&self) -> io::Result<Frame> {
        receive(&mut self.waiting())
    }

    /// Makes a request that needs only `below` of this side meanwhile.
    pub(super) fn ask(
        &self,
        kind: Kind,
        parts: &[&[u8]],
        below: &dyn Target,
    ) -> io::Result<Result<Frame, Failure>> {
        if let Err(failure) = fits(parts) {
            return Ok(Err(failure));
        }
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
        if let Err(failure) = fits(&parts) {
            return Ok(Err(failure));
        }
        let mut other = self.waiting();
        send(&mut other, Kind::Call, &parts)?;
        let frame = match converse(&mut other, below, message.entries)? {
            Ok(frame) => frame,
            Err(failure) => return Ok(Err(failure)),
        };
        let (answers, read) = (frame.get::<Answers>(0)?, frame.bytes(2));
        // A count beyond the data read would expose earlier contents of the buffer.
        if !message.buffer.is_empty() && answers.count != read.len() as u64 {
            return Err(invalid());
        }
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
            _ => oblige(other, &frame, below, &mut entries)?,
        }
    }
}

/// Carries out a request of the other side before it answers.
fn oblige(
    other: &mut Waiting<'_>,
    frame: &Frame,
    below: &dyn Target,
    entries: &mut Option<&mut dyn Entries>,
) -> io::Result<()> {
    other.may_ask()?;
    match frame.kind {
        Kind::Call => serve(other, frame, below, entries),
        Kind::Capabilities => answer(other, &[bytemuck::bytes_of(&below.capabilities())]),
        Kind::Entry => take(other, frame, entries),
        _ => Err(invalid()),
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
        Ok(done) => {
            // Only a read counts bytes in the buffer.
            let count = if room == 0 { 0 } else { done.answers.count };
            let read = buffer.get(..usize::try_from(count).unwrap_or(usize::MAX)).unwrap_or(buffer);
            answer(other, &[bytemuck::bytes_of(&done.answers), &done.bytes, read])
        }
        Err(failure) => fail(other, &failure),
    }
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

/// No file system, for requests before there is one.
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
    use super::super::frame::WORDS_MAX;
    use super::*;
    use braid_contract::{FileSystem, Served};
    use braid_sdk::Below;
    use braid_testkit::conformance::file_system::{Fresh, Part, run};
    use braid_testkit::dir_fs::{Choice, DirFs};
    use std::io::Write;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

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

    /// A conversation whose other side does this.
    fn with_other(
        patience: Duration,
        other: impl FnOnce(Pipe) + Send + 'static,
        ask: impl FnOnce(&Pipe) -> io::Result<Result<Answer, Failure>>,
    ) -> io::Result<Result<Answer, Failure>> {
        let (near, far) = UnixStream::pair().unwrap();
        let far = std::thread::spawn(move || other(Pipe::new(far)));
        let near = Pipe::impatient(near, Patience { alone: Duration::from_secs(60), in_all: patience });
        let asked = ask(&near.unwrap());
        far.join().unwrap();
        asked
    }

    #[test]
    fn a_count_of_what_was_not_read_is_refused() {
        let read = |count: u64, bytes: &'static [u8]| {
            let answers = Answers { count, ..Answers::default() };
            let other = move |pipe: Pipe| {
                pipe.receive().unwrap();
                pipe.answer(&[bytemuck::bytes_of(&answers), &[], bytes]).unwrap();
            };
            let mut buffer = *b"secret";
            let asked = with_other(Duration::MAX, other, |pipe| {
                let message = Message { buffer: &mut buffer, ..Message::new(Numbers::default()) };
                pipe.call(message, &Nothing)
            });
            (asked.map(|answer| answer.unwrap().answers.count).map_err(|error| error.kind()), buffer)
        };
        assert_eq!(read(3, b"abc"), (Ok(3), *b"abcret"));
        for (count, bytes) in [(6, &b""[..]), (6, b"abc"), (2, b"abc"), (7, b"abcdefg")] {
            assert_eq!(read(count, bytes), (Err(io::ErrorKind::InvalidData), *b"secret"), "{count}");
        }
    }

    #[test]
    fn nobody_asks_for_ever() {
        struct Something;
        impl Target for Something {
            fn call(&self, _: Message<'_>) -> Result<Answer, Failure> {
                Ok(Answer::default())
            }

            fn capabilities(&self) -> Capabilities {
                Capabilities::default()
            }
        }
        let chats = |pipe: Pipe| {
            pipe.receive().unwrap();
            while pipe.call(Message::new(Numbers::default()), &Nothing).is_ok() {}
        };
        let asked = with_other(Duration::from_millis(50), chats, |pipe| {
            pipe.call(Message::new(Numbers::default()), &Something)
        });
        let error = asked.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.to_string().contains("asked for more"), "{error}");
    }

    #[test]
    fn words_are_short_and_long_parts_are_refused() {
        let long = |pipe: Pipe| {
            pipe.receive().unwrap();
            let why = "\x1b[2J\n".to_owned() + &"a".repeat(1 << 20);
            pipe.fail(&Failure { errno: libc::EBUSY, why }).unwrap();
            pipe.receive().unwrap();
            pipe.answer(&[&vec![0; FRAME_MAX as usize + 1]]).unwrap();
        };
        with_other(Duration::MAX, long, |pipe| {
            let failure = pipe.ask(Kind::Export, &[], &Nothing).unwrap().unwrap_err();
            assert_eq!((failure.errno, failure.why.len()), (libc::EBUSY, WORDS_MAX));
            assert!(failure.why.starts_with(" [2J aa"), "{}", &failure.why[..10]);
            let failure = pipe.ask(Kind::Import, &[&vec![0; FRAME_MAX as usize + 1]], &Nothing);
            assert_eq!(failure.unwrap().unwrap_err().errno, libc::E2BIG, "it was not sent");
            let failure = pipe.ask(Kind::Export, &[], &Nothing).unwrap().unwrap_err();
            assert!(failure.why.contains("more than 16 MiB"), "{}", failure.why);
            Ok(Ok(Answer::default()))
        })
        .unwrap()
        .unwrap();
    }
}
