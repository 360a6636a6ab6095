//! Connections: how many, how long a client may take to say what it wants, and how all this ends.
//! How long one may leave what it is told unread is [`Socket`]'s.

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use axum::Router;
use ember_host::interrupt::Interrupt;
use futures_util::future::select;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::runtime::{self, Runtime};
use tokio::sync::Semaphore;

use super::socket::Socket;

/// Threads that pass on what clients send and are told.
const WORKERS: usize = 2;

/// Requests that are understood at the same time: each may be long, and many of them in memory at
/// once are what nobody needs.
const READERS: usize = 8;

/// Long ones among them, so that short ones find a reader.
pub(super) const LONG_READERS: usize = READERS / 4;

/// Threads that an answer may need: all of the runtime's, and one that writes.
const THREADS: usize = WORKERS + READERS + 1;

/// How long a reader stays that has nothing to read: as long as the server.
const KEPT: Duration = Duration::from_secs(u32::MAX as u64);

/// Connections at once; who comes beyond them waits to be let in.
const MOST_CONNECTIONS: usize = 1024;

/// How long the head of a request may take to come, from the first byte or from when the connection
/// was opened.
const HEAD: Duration = Duration::from_secs(15);

/// Bytes of a request's head, which are held before anything else is known of it.
const MOST_HEAD: usize = 64 << 10;

/// Lines of a request's head.
const MOST_HEADERS: usize = 100;

/// How long connections that ask nothing are waited for at the end.
const GRACE: Duration = Duration::from_secs(1);

/// How often a server looks whether it is asked to end.
const LOOK: Duration = Duration::from_millis(50);

/// The address to listen on, as it is typed.
pub(super) fn address(typed: &str) -> Result<IpAddr, String> {
    if typed == "localhost" {
        return Ok(Ipv4Addr::LOCALHOST.into());
    }
    let what = "write an address: 127.0.0.1 (this machine alone), 0.0.0.0 (all who can reach it) or one of its own";
    typed.parse().map_err(|_| what.to_owned())
}

/// What a server runs on, made before anybody is told that it listens.
///
/// # Errors
/// When the system does not give it the threads that it needs.
pub(super) fn runtime() -> Result<Runtime> {
    // A runtime that gets a part of its threads waits for the others for ever.
    ensure_threads(THREADS)?;
    let mut runtime = runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(WORKERS).max_blocking_threads(READERS).thread_keep_alive(KEPT);
    let runtime = runtime.enable_all().build().context("cannot start the server")?;
    start_readers(&runtime);
    Ok(runtime)
}

/// Starts the threads that read requests now: later there may be none left, and who was let in would
/// wait for one.
fn start_readers(runtime: &Runtime) {
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.lock(); // while all wait, each takes a thread of its own
    for _ in 0..READERS {
        let waiting = Arc::clone(&gate);
        runtime.spawn_blocking(move || drop(waiting.lock()));
    }
    drop(closed);
}

/// Makes sure that the system gives so many threads at once.
fn ensure_threads(count: usize) -> Result<()> {
    let gate = Mutex::new(());
    thread::scope(|scope| {
        let closed = gate.lock(); // none ends before all have begun
        for _ in 0..count {
            let started = thread::Builder::new().spawn_scoped(scope, || drop(gate.lock()));
            started.with_context(|| {
                format!("cannot start {count} threads more, which the server needs; end other programs, or raise `ulimit -u`")
            })?;
        }
        drop(closed);
        Ok(())
    })
}

/// Answers until it is asked to end, and then finishes what it has begun.
pub(super) fn serve(
    runtime: Runtime,
    listener: TcpListener,
    app: Router,
    interrupt: &Interrupt,
    is_idle: impl Fn() -> bool,
) -> Result<()> {
    runtime.block_on(async {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let begun = GracefulShutdown::new();
        accept(&listener, &app, &begun, asked_to_end(interrupt.clone())).await;
        drop(listener);
        let (closed, idle) = (pin!(begun.shutdown()), pin!(idle_for_a_while(is_idle)));
        select(closed, idle).await;
        Ok(())
    })
}

/// Waits until the server has been idle for a while: what is left then are connections that ask nothing.
async fn idle_for_a_while(is_idle: impl Fn() -> bool) {
    let mut since = Instant::now();
    while since.elapsed() < GRACE {
        tokio::time::sleep(LOOK).await;
        if !is_idle() {
            since = Instant::now();
        }
    }
}

/// Waits until somebody asks the server to end.
async fn asked_to_end(interrupt: Interrupt) {
    while !interrupt.requested() {
        tokio::time::sleep(LOOK).await;
    }
}

/// Lets clients in, until `end`.
async fn accept(
    listener: &tokio::net::TcpListener,
    app: &Router,
    begun: &GracefulShutdown,
    end: impl Future<Output = ()>,
) {
    let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let letting_in = async {
        loop {
            let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                // Too many files are open, say: soon there may be fewer.
                Err(_) => {
                    tokio::time::sleep(LOOK).await;
                    continue;
                }
            };
            let _ = stream.set_nodelay(true); // a token is to be seen when it comes
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD)
                .max_buf_size(MOST_HEAD)
                .max_headers(MOST_HEADERS)
                .serve_connection(TokioIo::new(Socket::new(stream)), TowerToHyperService::new(app.clone()));
            let connection = begun.watch(connection);
            tokio::spawn(async move {
                let _ = connection.await; // a client that is gone is nobody's fault
                drop(place);
            });
        }
    };
    let (letting_in, end) = (pin!(letting_in), pin!(end));
    select(letting_in, end).await;
}
