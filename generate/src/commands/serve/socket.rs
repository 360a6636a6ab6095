//! A client's connection, which is closed when the client stops reading.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

/// How long a client may read nothing before the connection is closed; shorter in tests.
pub(super) const WRITE_TIMEOUT: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 60 });

/// A connection with a write timeout.
pub(super) struct Socket {
    stream: TcpStream,
    /// Deadline of the pending write.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl Socket {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self { stream, deadline: None }
    }

    /// The result of a write, or a timeout error if it is pending for too long.
    fn with_timeout(&mut self, context: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.deadline = None;
            return written;
        }
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(sleep(WRITE_TIMEOUT)));
        deadline.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.with_timeout(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.with_timeout(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::future::poll_fn;
    use std::net::Ipv4Addr;

    use tokio::net::TcpListener;

    use super::*;

    /// A connection, and its other end.
    async fn connected() -> (Socket, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (Socket::new(listener.accept().await.unwrap().0), client)
    }

    /// Whether a write that the system does not take yet may wait for longer.
    async fn may_wait(socket: &mut Socket) -> bool {
        poll_fn(|context| Poll::Ready(socket.with_timeout(context, Poll::Pending).is_pending())).await
    }

    #[test]
    fn what_nobody_reads_is_not_written_for_ever() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let error = runtime.block_on(async {
            let (mut socket, _client) = connected().await;
            loop {
                let written = poll_fn(|context| Pin::new(&mut socket).poll_write(context, &[0; 1 << 16])).await;
                if let Err(error) = written {
                    return error;
                }
            }
        });
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn who_has_read_something_has_the_whole_time_again() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (mut socket, _client) = connected().await;
            assert!(may_wait(&mut socket).await);
            poll_fn(|context| socket.with_timeout(context, Poll::Ready(Ok(1)))).await.unwrap();
            sleep(WRITE_TIMEOUT).await;
            assert!(may_wait(&mut socket).await);
        });
    }
}
