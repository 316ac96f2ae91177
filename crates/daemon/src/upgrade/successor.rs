//! The process that takes the mount over, as seen from the one that serves it and is to end.

use super::launch::Launch;
use super::packed::PackedMount;
use super::wire::{Message, VERSION};
use crate::peer::Peer;
use braid_contract::Shown;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How long the other program may take to answer, and to check the configuration.
const READY_WITHIN: Duration = Duration::from_secs(20);

/// How long it may take to open the volume: then this process goes on.
const SERVING_WITHIN: Duration = Duration::from_secs(30);

/// A program that waits for the mount.
#[derive(Debug)]
pub(crate) struct Successor {
    child: Child,
    peer: Peer,
    pub(crate) version: String,
}

impl Successor {
    /// Starts the program, and sends it the mount's configuration.
    ///
    /// # Errors
    /// The reason why it can't take the mount over.
    pub(crate) fn start(program: &Path, launch: &Launch) -> Result<Self, String> {
        let shown = program.shown();
        let (ours, theirs) = UnixStream::pair().map_err(|error| error.to_string())?;
        braid_sys::pass_on_no_files();
        let child = Command::new(program)
            .arg("take-over")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .spawn()
            .map_err(|error| format!("{shown} can't be started: {error}"))?;
        let mut successor = Self { child, peer: Peer(ours), version: String::new() };
        successor.introduce(launch).map_err(|why| {
            successor.end_child();
            format!("{shown}: {why}")
        })?;
        Ok(successor)
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn introduce(&mut self, launch: &Launch) -> Result<(), String> {
        let limit = |peer: &Peer| {
            peer.0.set_read_timeout(Some(READY_WITHIN))?;
            peer.0.set_write_timeout(Some(READY_WITHIN))
        };
        limit(&self.peer).map_err(|error| error.to_string())?;
        match self.hear("it does not say that it is a braid that can take a mount over")? {
            Message::Hello { version: VERSION, program } => self.version = program,
            Message::Hello { version, program } => {
                return Err(format!(
                    "braid {program} understands version {version} of what is handed over, this one gives {VERSION}: unmount, and mount with it"
                ));
            }
            other => return Err(unexpected(&other)),
        }
        self.peer.say(&Message::Offer(Box::new(launch.clone()))).map_err(|error| error.to_string())?;
        match self.hear("it ended while it looked at the configuration")? {
            Message::Ready => Ok(()),
            Message::Failed { why } => Err(why),
            other => Err(unexpected(&other)),
        }
    }

    /// Hands the mount over. On success, the other process serves it, and takes the end of the
    /// conversation for the end of this one's part in the mount.
    ///
    /// # Errors
    /// The reason why it does not; it has ended then.
    pub(crate) fn hand_over(mut self, packed: &PackedMount) -> Result<(Child, Peer), String> {
        match self.try_to_hand_over(packed) {
            Ok(()) => Ok((self.child, self.peer)),
            Err(why) => {
                self.end_child();
                Err(why)
            }
        }
    }

    fn try_to_hand_over(&mut self, packed: &PackedMount) -> Result<(), String> {
        let mount = Message::Mount {
            state: Box::new(packed.state.clone()),
            inodes: packed.inodes.len() as u64,
            descriptors: packed.descriptors.len(),
        };
        let give = |peer: &mut Peer| -> io::Result<()> {
            peer.say(&mount)?;
            peer.say_bytes(&packed.inodes)?;
            peer.pass(&packed.borrowed())?;
            peer.0.set_read_timeout(Some(SERVING_WITHIN))
        };
        let given = give(&mut self.peer);
        // A process that takes nothing may have sent the reason.
        match self.hear("it ended before it served the mount")? {
            Message::Serving => given.map_err(|error| format!("it takes nothing: {error}")),
            Message::Failed { why } => Err(why),
            other => Err(unexpected(&other)),
        }
    }

    fn hear(&mut self, if_gone: &str) -> Result<Message, String> {
        self.peer.hear().map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => if_gone.to_owned(),
            io::ErrorKind::InvalidData => format!("it says what is not understood: {error}"),
            io::ErrorKind::WouldBlock => "it does not answer in time".to_owned(),
            _ => error.to_string(),
        })
    }

    /// Gives up the other process.
    pub(crate) fn give_up(mut self) {
        self.end_child();
    }

    /// Ends the other process, which must not use the volume any more.
    fn end_child(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        if let Err(error) = self.child.wait() {
            tracing::error!(%error, pid = self.child.id(), "can't tell whether a process has ended");
        }
    }
}

fn unexpected(message: &Message) -> String {
    let text = format!("{message:?}");
    format!("it says what is not expected: {}", text.chars().take(80).collect::<String>())
}
