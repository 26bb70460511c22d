//! A TCP listener for HTTP that untrusted peers can reach: it limits the number and the age of connections. What is
//! served over it is decided elsewhere.

use std::{
    collections::VecDeque,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::Notify,
    time::Sleep,
};

/// The most connections at once. Probes and Prometheus need one or two; when one more comes, the oldest is cut.
const MAX_CONNECTIONS: usize = 32;
/// How long a connection may last, used or not. A client that needs more time connects again.
const MAX_AGE: Duration = Duration::from_secs(10);
/// How long accepting pauses when the process is out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Listens for HTTP; pass it to `axum::serve`.
#[derive(Debug)]
pub struct HttpListener {
    listener: TcpListener,
    /// The oldest first; some may be closed.
    open: VecDeque<Weak<Notify>>,
}

impl HttpListener {
    /// Wraps a socket that listens.
    #[must_use]
    pub const fn new(listener: TcpListener) -> Self {
        Self { listener, open: VecDeque::new() }
    }
}

impl axum::serve::Listener for HttpListener {
    type Io = LimitedStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (LimitedStream, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok((stream, address)) => {
                    self.open.retain(|cut| cut.strong_count() > 0);
                    while self.open.len() >= MAX_CONNECTIONS {
                        if let Some(oldest) = self.open.pop_front().and_then(|cut| cut.upgrade()) {
                            oldest.notify_one();
                        }
                    }
                    let cut = Arc::new(Notify::new());
                    self.open.push_back(Arc::downgrade(&cut));
                    return (LimitedStream::new(stream, cut), address);
                }
                Err(error) => {
                    tracing::debug!(%error, "cannot accept an HTTP connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that ends when it is too old, or when it is cut to make room for another one.
pub struct LimitedStream {
    stream: TcpStream,
    /// Completes when the connection is too old or cut; `None` from then on.
    over: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// Marks this connection as open in the listener's list.
    _place: Arc<Notify>,
}

impl LimitedStream {
    fn new(stream: TcpStream, cut: Arc<Notify>) -> Self {
        let place = Arc::clone(&cut);
        let age: Sleep = tokio::time::sleep(MAX_AGE);
        let over = async move {
            tokio::select! {
                () = age => {}
                () = cut.notified() => {}
            }
        };
        Self { stream, over: Some(Box::pin(over)), _place: place }
    }

    /// Returns an error once the connection is over; until then, wakes the task when that happens.
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if let Some(over) = &mut self.over {
            if over.as_mut().poll(cx).is_pending() {
                return Ok(());
            }
            self.over = None;
        }
        Err(io::ErrorKind::TimedOut.into())
    }
}

impl AsyncRead for LimitedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for LimitedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
