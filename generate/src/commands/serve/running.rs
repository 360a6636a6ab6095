//! A server in a background thread: for tests, and for fuzzing, which sends it arbitrary bytes.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result};
use burn::tensor::Device;
use ember_host::interrupt::Interrupt;
use ember_model::WeightType;

use super::guard::Guard;
use super::models::{LoadOptions, Models};
use super::names::{NamedFolder, Served};
use super::server::{Server, Setup};
use super::{listen, router};

/// A server of one model on the CPU, on a free port; dropping this stops it.
pub struct Running {
    /// Address on which it listens.
    pub address: SocketAddr,
    interrupt: Interrupt,
    thread: Option<thread::JoinHandle<Result<()>>>,
}

impl Running {
    /// Serves the model in `folder` under the name `tiny` to every process on this machine.
    ///
    /// # Errors
    /// When the model cannot be loaded, or no port is free.
    pub fn start(folder: &Path) -> Result<Self> {
        Self::with(folder, None, Vec::new(), 4, 8)
    }

    /// The same with API keys, allowed origins, and limits of active and waiting requests.
    pub(super) fn with(
        folder: &Path,
        keys: Option<Vec<String>>,
        origins: Vec<String>,
        at_once: usize,
        queue: usize,
    ) -> Result<Self> {
        let options = LoadOptions {
            device: Device::flex(),
            weights: WeightType::F32,
            tokens_per_step: 16,
            cache_bytes: 1 << 20,
            max_bytes: 1 << 30,
        };
        let tiny = NamedFolder { name: "tiny".to_owned(), folder: folder.to_owned() };
        let models = Models::new(Served { folders: vec![tiny], run: None }, options)?;
        let server = Arc::new(Server::new(models, Setup::default(), at_once, queue));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen")?;
        let address = listener.local_addr().context("cannot listen")?;
        let app = router(Arc::clone(&server), Arc::new(Guard::new(keys, origins)), &[]);
        let interrupt = Interrupt::new();
        let shutdown = interrupt.clone();
        let runtime = listen::runtime()?;
        let thread = thread::spawn(move || listen::serve(runtime, listener, app, &shutdown, || server.is_idle()));
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
