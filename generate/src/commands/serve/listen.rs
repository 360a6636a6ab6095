//! Accepts connections, limits their number and the time to send a request's head, and shuts down.
//! [`Socket`] limits how long a client may leave its answer unread.

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

/// Threads of the async runtime.
const WORKERS: usize = 2;

/// Requests parsed at the same time: each may be long, and this bounds the memory for them.
const READERS: usize = 8;

/// Long requests among them, so that readers remain for short ones.
pub(super) const LONG_READERS: usize = READERS / 4;

/// Conversations among them: a chat template may take seconds, and readers must remain for requests
/// without one.
pub(super) const CONVERSATION_READERS: usize = READERS / 2;

/// Threads that an answer may need: all of the runtime's, and one that generates.
const THREADS: usize = WORKERS + READERS + 1;

/// How long an idle reader thread is kept: as long as the server runs.
const KEEP_ALIVE: Duration = Duration::from_secs(u32::MAX as u64);

/// Concurrent connections; further ones wait to be accepted.
const MAX_CONNECTIONS: usize = 1024;

/// Timeout for a request's head, from the first byte or from the opening of the connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(15);

/// Largest head of a request; it is buffered before any other check.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// Header lines of a request.
const MAX_HEADERS: usize = 100;

/// How long shutdown waits for connections without a request.
const IDLE_GRACE: Duration = Duration::from_secs(1);

/// How often the server polls for shutdown.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Parses the address to listen on.
pub(super) fn address(typed: &str) -> Result<IpAddr, String> {
    if typed == "localhost" {
        return Ok(Ipv4Addr::LOCALHOST.into());
    }
    let what = "write an IP address: 127.0.0.1 (this machine only), 0.0.0.0 (all who can reach it) or one of its own";
    typed.parse().map_err(|_| what.to_owned())
}

/// The async runtime, created before the server announces that it listens.
///
/// # Errors
/// When the system does not grant the threads that it needs.
pub(super) fn runtime() -> Result<Runtime> {
    // A runtime that gets only some of its threads waits forever for the others.
    ensure_threads(THREADS, thread::Builder::new)?;
    let mut runtime = runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(WORKERS).max_blocking_threads(READERS).thread_keep_alive(KEEP_ALIVE);
    let runtime = runtime.enable_all().build().context("cannot start the server")?;
    start_readers(&runtime);
    Ok(runtime)
}

/// Starts the reader threads now: later the system may have none left, and accepted requests would
/// wait for one.
fn start_readers(runtime: &Runtime) {
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.lock(); // each task blocks, so each needs its own thread
    for _ in 0..READERS {
        let waiting = Arc::clone(&gate);
        runtime.spawn_blocking(move || drop(waiting.lock()));
    }
    drop(closed);
}

/// Checks that the system grants `count` threads at once, as `builder` asks for them.
fn ensure_threads(count: usize, builder: impl Fn() -> thread::Builder) -> Result<()> {
    let gate = Mutex::new(());
    thread::scope(|scope| {
        let closed = gate.lock(); // no thread ends before all have started
        for _ in 0..count {
            let started = builder().spawn_scoped(scope, || drop(gate.lock()));
            started.with_context(|| {
                format!("cannot start {count} threads for the server; end other programs, or raise `ulimit -u`")
            })?;
        }
        drop(closed);
        Ok(())
    })
}

/// Serves until shutdown is requested, then finishes the requests in progress.
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
        let connections = GracefulShutdown::new();
        accept(&listener, &app, &connections, shutdown_requested(interrupt.clone())).await;
        drop(listener);
        let (closed, idle) = (pin!(connections.shutdown()), pin!(idle_for_a_while(is_idle)));
        select(closed, idle).await;
        Ok(())
    })
}

/// Waits until the server has been idle for a while: the remaining connections carry no request.
async fn idle_for_a_while(is_idle: impl Fn() -> bool) {
    let mut since = Instant::now();
    while since.elapsed() < IDLE_GRACE {
        tokio::time::sleep(POLL_INTERVAL).await;
        if !is_idle() {
            since = Instant::now();
        }
    }
}

/// Waits until shutdown is requested.
async fn shutdown_requested(interrupt: Interrupt) {
    while !interrupt.requested() {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Accepts connections until `end`.
async fn accept(
    listener: &tokio::net::TcpListener,
    app: &Router,
    connections: &GracefulShutdown,
    end: impl Future<Output = ()>,
) {
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let accepting = async {
        loop {
            let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                // For example too many open files, which may pass.
                Err(_) => {
                    tokio::time::sleep(POLL_INTERVAL).await;
                    continue;
                }
            };
            let _ = stream.set_nodelay(true); // send each token at once
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .max_buf_size(MAX_HEAD_BYTES)
                .max_headers(MAX_HEADERS)
                .serve_connection(TokioIo::new(Socket::new(stream)), TowerToHyperService::new(app.clone()));
            let connection = connections.watch(connection);
            tokio::spawn(async move {
                let _ = connection.await; // a disconnect is not an error
                drop(permit);
            });
        }
    };
    let (accepting, end) = (pin!(accepting), pin!(end));
    select(accepting, end).await;
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::cell::Cell;
    use std::sync::mpsc;

    use super::*;

    /// No system grants the stack of the last thread; the others are waiting by then, and must end:
    /// the check does not return before.
    #[test]
    fn threads_that_are_not_all_granted_are_refused_in_a_line_and_none_stays_waiting() {
        let (told, answer) = mpsc::channel();
        thread::spawn(move || {
            let built = Cell::new(0);
            let builder = || {
                built.set(built.get() + 1);
                if built.get() < 4 { thread::Builder::new() } else { thread::Builder::new().stack_size(usize::MAX / 4) }
            };
            told.send([ensure_threads(4, builder), ensure_threads(4, thread::Builder::new)]).unwrap();
        });
        let [refused, granted] = answer.recv_timeout(Duration::from_secs(60)).unwrap();
        let error = format!("{:#}", refused.unwrap_err());
        let line = "cannot start 4 threads for the server; end other programs, or raise `ulimit -u`: ";
        assert!(error.starts_with(line), "{error}");
        granted.unwrap();
    }
}
