//! A session with another mount's runtime, as the bottom of a stack.

use super::look::{Seen, acts_for_others, find};
use super::settings::ViewSettings;
use crate::bottom::Bottom;
use crate::guard::KeptBottom;
use crate::kv::Owner;
use crate::modules::Modules;
use crate::refusal::{Place, Refusal};
use crate::upgrade::{BottomState, ViewState};
use braid_contract::{Errno, Error, Figure, FileSystem, HandleId, InodeId, OpenBefore, Result, Shown};
use braid_ipc::protocol::{ErrorReply, Status};
use braid_runtime::{Geometry, GivenLink, LinkState, Options, Session};
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

/// Queues of a view: simultaneous requests of the kernel are dealt among them. The largest request
/// of the kernel takes two slots.
const GEOMETRY: Geometry = Geometry { queues: 4, depth: 8, data: 512 << 10 };

/// A session with the runtime of another mount.
pub(crate) struct OpenView {
    /// The place that it shows.
    of: PathBuf,
    fs: Arc<dyn FileSystem>,
    session: Arc<Session>,
    /// The inode of that place in the session.
    root: InodeId,
    /// Keeps the mount below from being unmounted: it is in use.
    in_use: OwnedFd,
}

impl OpenView {
    /// Begins the session.
    pub(crate) fn open(view: &ViewSettings) -> std::result::Result<Arc<dyn Bottom>, Refusal> {
        let Seen { dir, mount, socket } = find(view)?;
        let place = &view.of.place;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let in_use = rustix::fs::open(&dir, flags, Mode::empty())
            .map_err(|error| place.refuse(format!("{}: {error}", dir.shown()), "name a directory"))?;
        let for_others = acts_for_others(&mount);
        let options = Options { geometry: GEOMETRY, for_others, ..Options::default() };
        let (session, root) =
            Session::begin(&socket, &dir, options).map_err(|error| refuse_session(place, &error))?;
        Ok(Arc::new(Self::of(dir, (session, root), in_use)))
    }

    /// Goes on with the session of another process.
    ///
    /// # Errors
    /// If its state makes no sense, or there are no descriptors left.
    pub(crate) fn open_taken(given: &ViewState) -> std::io::Result<Arc<dyn Bottom>> {
        let session = Session::go_on(given.link.try_clone()?)?;
        let in_use = given.in_use.try_clone()?;
        Ok(Arc::new(Self::of(given.of.clone(), (session, given.root), in_use)))
    }

    /// Goes on with the session of a process that crashed, with these files open.
    ///
    /// # Errors
    /// If the mount below has ended, or what was kept makes no sense.
    pub(crate) fn open_after_crash(
        kept: &KeptBottom,
        open: &[OpenBefore],
    ) -> std::io::Result<Arc<dyn Bottom>> {
        let ViewKept { of, root, link } = ViewKept::deserialize(&kept.state)?;
        let descriptors =
            kept.descriptors.iter().map(OwnedFd::try_clone).collect::<std::io::Result<Vec<_>>>()?;
        let [memory, socket, in_use] =
            <[OwnedFd; 3]>::try_from(descriptors).map_err(|_| std::io::ErrorKind::InvalidData)?;
        let open: Vec<HandleId> = open.iter().map(|open| open.handle).collect();
        let session = Session::go_on_after_crash(GivenLink { state: link, memory, socket }, &open)?;
        Ok(Arc::new(Self::of(of, (session, InodeId(root)), in_use)))
    }

    fn of(of: PathBuf, (session, root): (Arc<Session>, InodeId), in_use: OwnedFd) -> Self {
        let fs = session.rooted(root, braid_fuse::groups_of_thread);
        Self { of, fs, session, root, in_use }
    }
}

/// The state of a view that outlives its process.
#[derive(Serialize, Deserialize)]
struct ViewKept {
    /// The place that it shows.
    of: PathBuf,
    /// The inode of that in the session.
    root: u64,
    link: LinkState,
}

fn refuse_session(place: &Place, error: &Error) -> Refusal {
    let advice = match error.errno() {
        Errno::EAGAIN => "end other sessions: braid runtime MOUNT lists them",
        Errno::EACCES | Errno::EPERM => "mount the view as root, or as the user who mounted what is below",
        _ => "mount what is below with this version of Braid; its log may say more",
    };
    place.refuse(format!("no session begins: {error}"), advice).about(error.errno())
}

impl Bottom for OpenView {
    fn name(&self) -> &'static str {
        "view"
    }

    fn keys(&self) -> &'static [&'static str] {
        &["of"]
    }

    fn file_system(&self) -> Arc<dyn FileSystem> {
        Arc::clone(&self.fs)
    }

    fn id(&self) -> String {
        // It has no data of its own that would outlive it.
        format!("{:032x}", std::process::id())
    }

    fn figures(&self) -> Result<Vec<Figure>> {
        let is_over = u64::from(self.session.is_over());
        let what = "Whether the session with the mount below is over: all fails with ENOTCONN";
        Ok(vec![Figure::gauge("view_over", what, is_over)])
    }

    fn tell(&self, status: &mut Status) {
        status.view = Some(self.of.to_string_lossy().into_owned());
    }

    fn owner(&self, _: &Arc<Modules>, top: Arc<dyn FileSystem>) -> Owner {
        Owner::of_files(top)
    }

    fn no_volume(&self) -> String {
        let of = self.of.shown();
        format!(
            "this is a view, and no volume: it has no tiers, ranges or jobs of its own\n  \
             help: ask the mount that it is of: {of}"
        )
    }

    fn ends_with_process(&self) -> Option<String> {
        self.session.ends_with_process().map(str::to_owned)
    }

    fn outlive(&self) -> Result<KeptBottom> {
        let GivenLink { state, memory, socket } = self.session.give()?;
        let state = ViewKept { of: self.of.clone(), root: self.root.0, link: state };
        let state = serde_json::to_value(state).map_err(std::io::Error::from)?;
        Ok(KeptBottom { state, descriptors: vec![memory, socket, self.in_use.try_clone()?] })
    }

    fn may_be_given(&self) -> std::result::Result<(), ErrorReply> {
        if self.session.is_over() {
            return Err(ErrorReply::new(
                "the session with the mount below is over: unmount the view, and mount it anew",
            ));
        }
        Ok(())
    }

    fn give(&self) -> Result<BottomState> {
        let in_use = self.in_use.try_clone()?;
        let Self { of, root, .. } = self;
        Ok(BottomState::View(ViewState { of: of.clone(), root: *root, link: self.session.give()?, in_use }))
    }

    fn no_access_times(&self) -> &'static str {
        "the mount below says when reading renews access times"
    }

    fn close(&self) -> Result<()> {
        Ok(())
    }
}
