//! A module of frames by itself, and several of them on each other.

use super::handover::OpenFiles;
use super::layer::Framed;
use super::pipeline::Pipeline;
use crate::{Member, Module, State};
use braid_contract::{Crash, Figure, FileSystem, HandleId, InodeId, Layer, Result};
use serde::de::DeserializeOwned;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// The settings of a module of frames.
pub trait FrameSettings: DeserializeOwned + fmt::Debug + Send + Sync + 'static {
    /// [`Module::NAME`]
    const NAME: &'static str;

    /// The module's part in the settings of frames.
    fn pipeline(&self) -> &Pipeline;
}

/// The module with these settings.
pub struct OfFrames<S>(Framed, PhantomData<fn() -> S>);

impl<S> Layer for OfFrames<S> {
    fn child(&self) -> &dyn FileSystem {
        &self.0
    }
}

impl<S: FrameSettings> Module for OfFrames<S> {
    const NAME: &'static str = S::NAME;
    const IS_FRAMED: bool = true;
    type Settings = S;

    fn new(settings: &S, child: Arc<dyn FileSystem>) -> Result<Self> {
        Ok(Self(Framed::new(settings.pipeline().clone(), child, true)?, PhantomData))
    }

    fn frames(settings: &S) -> Option<Pipeline> {
        Some(settings.pipeline().clone())
    }

    fn end(&self) {
        self.0.end();
    }

    fn figures(&self) -> Vec<Figure> {
        Member::figures(&self.0)
    }
}

/// Several modules that are one.
impl Member for Framed {
    fn name(&self) -> &str {
        "frames"
    }

    fn figures(&self) -> Vec<Figure> {
        self.engine.shared.counts.figures()
    }

    fn needs_state(&self) -> bool {
        true
    }

    fn export(&self) -> Result<State> {
        Ok(OpenFiles::of(&self.engine).encode())
    }

    fn prepare_to_give(&self) {
        if let Err(error) = self.settle() {
            tracing::warn!(%error, "what was written in frames could not be settled beforehand");
        }
    }

    fn give(&self) -> Result<State> {
        self.stop_settling();
        self.end();
        self.engine.leave_all();
        self.export()
    }

    fn import(&self, state: &State) -> Result<()> {
        self.engine.take(&OpenFiles::decode(state)?);
        Ok(())
    }

    fn take_open_files(&self, open: &[(HandleId, InodeId)]) {
        self.engine.take(&OpenFiles { handles: open.to_vec(), held: Vec::new() });
    }

    /// A file that was emptied may have to be so durably, which the process before knew.
    fn repair(&self, _after: Crash) -> Result<()> {
        self.engine.child().sync()
    }

    fn end(&self) {
        Framed::end(self);
    }
}
