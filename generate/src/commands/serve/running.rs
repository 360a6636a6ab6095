//! A server at work beside whoever started it: for tests, and for fuzzing, which sends it any bytes.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result};
use burn::tensor::Device;
use ember_host::interrupt::Interrupt;
use ember_model::WeightType;

use super::guard::Guard;
use super::models::{Loading, Models};
use super::names::{NamedFolder, Served};
use super::server::Server;
use super::{listen, router};

/// A server of one model on the CPU, on a port of its own; it ends when this is dropped.
pub struct Running {
    /// Where it listens.
    pub address: SocketAddr,
    interrupt: Interrupt,
    thread: Option<thread::JoinHandle<Result<()>>>,
}

impl Running {
    /// Serves the model in `folder` under the name `tiny` to everybody on this machine.
    ///
    /// # Errors
    /// When the model cannot be loaded, or no port be had.
    pub fn start(folder: &Path) -> Result<Self> {
        Self::with(folder, None, Vec::new(), 4, 8)
    }

    /// With these keys, for pages of these origins, so many requests at once and as many waiting.
    pub(super) fn with(
        folder: &Path,
        keys: Option<Vec<String>>,
        origins: Vec<String>,
        at_once: usize,
        queue: usize,
    ) -> Result<Self> {
        let loading = Loading {
            device: Device::flex(),
            weights: WeightType::F32,
            tokens_per_step: 16,
            cache_bytes: 1 << 20,
            most_bytes: 1 << 30,
        };
        let tiny = NamedFolder { name: "tiny".to_owned(), folder: folder.to_owned() };
        let models = Models::new(Served { folders: vec![tiny], run: None }, loading)?;
        let server = Arc::new(Server::new(models, at_once, queue));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen")?;
        let address = listener.local_addr().context("cannot listen")?;
        let app = router(Arc::clone(&server), Arc::new(Guard::new(keys, origins)), &[]);
        let interrupt = Interrupt::new();
        let asked_to_end = interrupt.clone();
        let runtime = listen::runtime()?;
        let thread = thread::spawn(move || listen::serve(runtime, listener, app, &asked_to_end, || server.is_idle()));
        Ok(Self { address, interrupt, thread: Some(thread) })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.interrupt.request();
        let ended = self.thread.take().map(thread::JoinHandle::join);
        assert!(thread::panicking() || matches!(ended, Some(Ok(Ok(())))), "the server ended by a fault");
    }
}
