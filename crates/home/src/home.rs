//! The home tier's directory: the root from which everything is opened.

use crate::identity::{Identity, Node};
use crate::numbers::Numbers;
use braid_contract::{
    Access, AccessTimes, Attr, Context, Errno, Error, Fd, FileKind, InodeId, NativeFd, NativeHandle,
    NativeStat, Renewal, Result, VolumeId, XattrMode,
};
use braid_format::{BRAID_DIR, FormatError, IdAttr, PinAttr, Seal, StoredPin};
use parking_lot::RwLock;
use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// The home tier's directory, which may be replaced by another one while no
/// operation is under way.
pub struct Home {
    generation: RwLock<Arc<RootGeneration>>,
    /// The code of its [`ReadRenewal`].
    read_renewal: AtomicU8,
    attr_name: &'static str,
    seal: Seal,
}

/// The directory that is home, and its properties.
pub struct RootGeneration {
    root: Fd,
    device: u64,
    /// How often home was replaced: handles of an earlier home must not be used
    /// on this one.
    turn: u32,
    numbers: Numbers,
    /// Whether inodes are opened by handle.
    by_handle: bool,
    journal_order: bool,
}

/// How often reads renew access times on home.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadRenewal {
    /// As it was when last looked at.
    pub renewal: Renewal,
    /// It was set for this root. If not, it is that of the file system's mount,
    /// which may change.
    pub is_set: bool,
}

impl ReadRenewal {
    const SET: u8 = 0x80;

    fn of(root: &dyn NativeFd) -> Result<Self> {
        match root.access_times() {
            Some(times) => Ok(Self { renewal: times.renewal, is_set: true }),
            None => Ok(Self { renewal: root.usage()?.access_times.renewal, is_set: false }),
        }
    }

    fn code(self) -> u8 {
        let set = if self.is_set { Self::SET } else { 0 };
        set | match self.renewal {
            Renewal::Relative => 0,
            Renewal::Always => 1,
            Renewal::Never => 2,
        }
    }

    fn of_code(code: u8) -> Self {
        let renewal = match code & !Self::SET {
            1 => Renewal::Always,
            2 => Renewal::Never,
            _ => Renewal::Relative,
        };
        Self { renewal, is_set: code & Self::SET != 0 }
    }
}

impl RootGeneration {
    /// Takes a directory that the caller has locked. Creates nothing.
    pub fn open(root: Fd, turn: u32) -> Result<Self> {
        let NativeStat { attr, device } = root.stat()?;
        let handles = root.handle().and_then(|handle| root.open_handle(&handle, Access::Path));
        Ok(Self {
            device,
            turn,
            numbers: Numbers::new(attr.ino.0),
            by_handle: handles.is_ok(),
            journal_order: root.usage()?.journal_order,
            root,
        })
    }

    /// The directory.
    pub fn root(&self) -> &Fd {
        &self.root
    }

    /// How often home was replaced before.
    pub fn turn(&self) -> u32 {
        self.turn
    }

    /// Inode numbers: public ones, which applications see, and native ones.
    pub fn numbers(&self) -> &Numbers {
        &self.numbers
    }

    /// Uses these numbers, which a replacement hands over.
    pub fn set_numbers(&mut self, numbers: Numbers) {
        self.numbers = numbers;
    }
}

impl Home {
    /// Takes over the tier's directory, which the caller has locked. Creates
    /// nothing.
    pub fn open(root: Fd) -> Result<Self> {
        let read_renewal = AtomicU8::new(ReadRenewal::of(&*root)?.code());
        let generation = RwLock::new(Arc::new(RootGeneration::open(root, 0)?));
        let seal = Seal { volume: VolumeId([0; 16]), secret: None };
        let attr_name = attr_name(!braid_sys::is_privileged());
        Ok(Self { generation, read_renewal, attr_name, seal })
    }

    /// The directory that is home now.
    pub fn generation(&self) -> Arc<RootGeneration> {
        Arc::clone(&self.generation.read())
    }

    /// How often home was replaced.
    pub fn turn(&self) -> u32 {
        self.generation.read().turn
    }

    /// Makes another directory home.
    pub fn switch_root(&self, generation: RootGeneration) {
        *self.generation.write() = Arc::new(generation);
        let _ = self.look_at_renewal();
    }

    /// Sets the namespace of extended attributes that the volume was created
    /// with, `user.` or `trusted.`.
    pub fn use_user_xattr(&mut self, user: bool) {
        self.attr_name = attr_name(user);
    }

    /// Sets the seal that the volume's attributes are written and checked with.
    pub fn use_seal(&mut self, seal: Seal) {
        self.seal = seal;
    }

    /// The seal of attributes.
    pub fn seal(&self) -> &Seal {
        &self.seal
    }

    /// Whether Braid's attributes are in the `user.` namespace.
    pub fn uses_user_xattr(&self) -> bool {
        self.attr_name.starts_with("user.")
    }

    /// The directory that is home now.
    pub fn root(&self) -> Fd {
        Fd::clone(&self.generation.read().root)
    }

    /// When reads update access times; `None` where the home file system
    /// decides.
    pub fn access_times(&self) -> Option<AccessTimes> {
        self.generation.read().root.access_times()
    }

    /// Sets that; `EOPNOTSUPP` where the home file system decides.
    pub fn set_access_times(&self, times: AccessTimes) -> Result<()> {
        let generation = self.generation();
        generation.root.set_access_times(times)?;
        self.look_at_renewal().map(drop)
    }

    /// How often reads renew access times. For the path of every read: it takes
    /// no lock.
    pub fn read_renewal(&self) -> ReadRenewal {
        ReadRenewal::of_code(self.read_renewal.load(Ordering::Relaxed))
    }

    /// The same, looked at anew: the home file system may have been mounted with
    /// other options.
    pub fn look_at_renewal(&self) -> Result<Renewal> {
        let found = ReadRenewal::of(&*self.root())?;
        self.read_renewal.store(found.code(), Ordering::Relaxed);
        Ok(found.renewal)
    }

    /// Opens an inode by the number that applications see. `ESTALE` if there is
    /// none, or it can't be opened that way.
    pub fn open_number(&self, ino: InodeId) -> Result<Fd> {
        let generation = self.generation();
        if !generation.by_handle {
            return Err(Errno::ESTALE.into());
        }
        let native = generation.numbers.native(ino);
        let handle = generation.root.handle_of(native).map_err(|_| Errno::ESTALE)?;
        let fd = generation.root.open_handle(&handle, Access::Path)?;
        if fd.stat()?.attr.ino.0 != native {
            return Err(Errno::ESTALE.into());
        }
        Ok(fd)
    }

    /// Opens `.braid`.
    pub fn braid(&self) -> Result<Fd> {
        self.root().open_at(OsStr::new(BRAID_DIR), Access::Directory)
    }

    /// Whether only the daemon's user can write in `.braid`. If root mounts a
    /// user's directory, handles stored there may lead to files outside the
    /// volume.
    pub fn is_ours(&self) -> Result<bool> {
        Ok(!braid_sys::is_privileged() || self.braid()?.stat()?.attr.uid == 0)
    }

    /// The inode number that applications see for a native one.
    pub fn public_ino(&self, native: u64) -> InodeId {
        self.generation.read().numbers.public(native)
    }

    /// Identifies the inode behind `fd`. `EXDEV` if it is on another file
    /// system: something is mounted inside the home tier.
    pub fn identify(&self, fd: &dyn NativeFd) -> Result<Identity> {
        Ok(Identity { attr: self.attr(fd)?, handle: fd.handle().ok() })
    }

    /// The attributes of the inode behind `fd`; `EXDEV` if it is on another file
    /// system.
    pub fn attr(&self, fd: &dyn NativeFd) -> Result<Attr> {
        self.is_home(fd.stat()?)
    }

    /// The attributes of the inode that `name` leads to, as those of
    /// [`attr`](Self::attr).
    pub fn attr_at(&self, dir: &dyn NativeFd, name: &OsStr) -> Result<Attr> {
        self.is_home(dir.stat_at(name)?)
    }

    fn is_home(&self, NativeStat { attr, device }: NativeStat) -> Result<Attr> {
        if device != self.generation.read().device {
            return Err(Errno::EXDEV.into());
        }
        Ok(attr)
    }

    /// Whether the inode stays open for as long as it is known, since it could
    /// not be opened again.
    pub fn pins(&self, identity: &Identity) -> bool {
        identity.handle.is_none() || !self.generation().by_handle
    }

    /// A node to open the inode behind `fd` again.
    pub fn node(&self, identity: &Identity, fd: Fd) -> Node {
        let generation = self.generation();
        match &identity.handle {
            Some(handle) if generation.by_handle => Node::Handle(handle.clone(), generation.turn),
            _ => Node::Pinned(fd),
        }
    }

    /// Opens an inode again.
    pub fn open_node(&self, node: &Node, access: Access) -> Result<Fd> {
        match node {
            Node::Handle(handle, turn) => {
                let generation = self.generation();
                // Handles of one file system may lead to another inode on a
                // different one.
                if generation.turn != *turn {
                    return Err(Errno::ESTALE.into());
                }
                generation.root.open_handle(handle, access)
            }
            Node::Pinned(fd) if access == Access::Path => Ok(Fd::clone(fd)),
            Node::Pinned(fd) => fd.reopen(access),
        }
    }

    /// Whether syncing a directory is enough for names removed from it to stay
    /// removed. Where inodes are logged one by one, as on btrfs, a file that
    /// was synced under an earlier name can come back under that name.
    pub fn keeps_removals(&self) -> bool {
        self.generation.read().journal_order
    }

    /// Whether stored handles can be opened.
    pub fn opens_handles(&self) -> bool {
        self.generation.read().by_handle
    }

    /// Whether inodes can be opened by their numbers alone.
    pub fn finds_numbers(&self) -> bool {
        self.open_number(InodeId::ROOT).is_ok()
    }

    /// Whether applications see numbers of a directory that was home before.
    pub fn keeps_numbers(&self) -> bool {
        let generation = self.generation();
        let numbers = generation.numbers();
        numbers.kept().next().is_some() || numbers.gone().next().is_some()
    }

    /// Opens an inode by a stored handle, if handles can be opened.
    pub fn open_handle(&self, handle: &NativeHandle) -> Result<Option<Fd>> {
        let generation = self.generation();
        if !generation.by_handle {
            return Ok(None);
        }
        generation.root.open_handle(handle, Access::Path).map(Some)
    }

    /// The id attribute of the inode behind `fd`; `None` if there is none or
    /// if it was copied from another inode. `EUCLEAN` if it can't be believed.
    pub fn id_attr(&self, fd: &dyn NativeFd, identity: &Identity) -> Result<Option<IdAttr>> {
        if identity.kind() != FileKind::Regular {
            return Ok(None);
        }
        // An attribute of a later version may be longer.
        let mut value = [0; 2 * IdAttr::LEN_MAX];
        let get = |fd: &dyn NativeFd| fd.get_xattr(OsStr::new(self.attr_name), &mut value);
        let value = match with_permission(fd, 0o400, get) {
            Ok(len) => &value[..len],
            Err(error) if matches!(error.errno(), Errno::ENODATA | Errno::EOPNOTSUPP) => return Ok(None),
            Err(error) if error.errno() == Errno::ERANGE => &[],
            Err(error) => return Err(error),
        };
        let unbelieved = |why: &dyn std::fmt::Display| {
            Error::new(Errno::EUCLEAN, format!("the id attribute of inode {}: {why}", identity.ino()))
        };
        let (attr, proof) = IdAttr::decode(value, &self.seal).map_err(|error| unbelieved(&error))?;
        if !identity.is(attr.ino, attr.btime_ns) {
            return Ok(None);
        }
        proof.check().map_err(|why| unbelieved(&why))?;
        Ok(Some(attr))
    }

    /// Sets the id attribute.
    pub fn set_id_attr(&self, fd: &dyn NativeFd, attr: &IdAttr) -> Result<()> {
        let name = OsStr::new(self.attr_name);
        with_permission(fd, 0o200, |fd| fd.set_xattr(name, &attr.encode(&self.seal), XattrMode::Set))
            .context("setting the id attribute")
    }

    /// Removes the id attribute, if there is one.
    pub fn remove_id_attr(&self, fd: &dyn NativeFd) -> Result<()> {
        match with_permission(fd, 0o200, |fd| fd.remove_xattr(OsStr::new(self.attr_name))) {
            Err(error) if error.errno() == Errno::ENODATA => Ok(()),
            result => result.context("removing the id attribute"),
        }
    }

    /// The pin of the file behind `fd`; `None` if it is not pinned.
    pub fn pin_of(&self, fd: &dyn NativeFd, identity: &Identity) -> Result<Option<PinAttr>> {
        let mut value = [0; 2 * PinAttr::LEN_MAX];
        let get = |fd: &dyn NativeFd| fd.get_xattr(OsStr::new(self.pin_name()), &mut value);
        let value = match with_permission(fd, 0o400, get) {
            Ok(len) => &value[..len],
            Err(error) if matches!(error.errno(), Errno::ENODATA | Errno::EOPNOTSUPP) => return Ok(None),
            Err(error) if error.errno() == Errno::ERANGE => &[],
            Err(error) => return Err(error),
        };
        Ok(self.believed_pin(PinAttr::decode(value, &self.seal), identity))
    }

    /// An unreadable pin still keeps movers away, where only root or damage can
    /// produce one. The owner of a file can't pin it that way.
    fn believed_pin(
        &self,
        read: std::result::Result<StoredPin, FormatError>,
        identity: &Identity,
    ) -> Option<PinAttr> {
        let why = match read {
            Ok(StoredPin { of: Some((ino, btime_ns)), .. }) if !identity.is(ino, btime_ns) => return None,
            Ok(StoredPin { pin, proof, .. }) => match proof.check() {
                Ok(()) => return Some(pin),
                Err(why) => why,
            },
            Err(error) => error.to_string(),
        };
        let ignored = self.uses_user_xattr();
        tracing::warn!(inode = identity.ino(), %why, ignored, "a pin that can't be believed");
        (!ignored).then_some(PinAttr { tier: None })
    }

    /// Pins the file behind `fd`, or unpins it.
    pub fn set_pin(&self, fd: &dyn NativeFd, identity: &Identity, pin: Option<&PinAttr>) -> Result<()> {
        let name = OsStr::new(self.pin_name());
        let of = (identity.ino(), identity.btime_ns());
        let set = |fd: &dyn NativeFd| match pin {
            Some(pin) => fd.set_xattr(name, &pin.encode(of, &self.seal), XattrMode::Set),
            None => match fd.remove_xattr(name) {
                Err(error) if error.errno() == Errno::ENODATA => Ok(()),
                result => result,
            },
        };
        with_permission(fd, 0o200, set).context("setting the pin attribute")
    }

    fn pin_name(&self) -> &'static str {
        if self.uses_user_xattr() { "user.braid.pin" } else { "trusted.braid.pin" }
    }

    /// Checks that the directory accepts the attribute that spread files need.
    /// Leaves no trace.
    pub fn try_xattr(&self) -> Result<()> {
        let name = if self.uses_user_xattr() { "user.braid.probe" } else { "trusted.braid.probe" };
        let root = self.root();
        root.set_xattr(OsStr::new(name), b"1", XattrMode::Set)?;
        root.remove_xattr(OsStr::new(name))
    }
}

fn attr_name(user: bool) -> &'static str {
    if user { "user.braid.id" } else { "trusted.braid.id" }
}

/// Runs an operation on the inode behind `fd` that needs permission on the
/// inode itself, as `user.` attributes do. In an unprivileged volume, the owner
/// may have removed that permission; it is restored for a moment.
fn with_permission<T>(
    fd: &dyn NativeFd,
    needed: u32,
    mut act: impl FnMut(&dyn NativeFd) -> Result<T>,
) -> Result<T> {
    match act(fd) {
        Err(error) if error.errno() == Errno::EACCES => {
            let mode = u32::from(fd.stat()?.attr.mode);
            // The file is another user's, and only that user could grant it: it
            // fails as natively.
            if fd.set_mode(mode | needed).is_err() {
                return Err(error);
            }
            let result = act(fd);
            fd.set_mode(mode)?;
            result
        }
        result => result,
    }
}
