//! A TCP listener for HTTP that strangers can reach: few connections at once, none for long. What is served over it is
//! decided elsewhere.

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

/// Connections at once. Probes and Prometheus need one or two; with one more, the oldest is cut.
const MAX_CONNECTIONS: usize = 32;
/// How long a connection lasts at most, used or not. A client that wants more connects again.
const MAX_AGE: Duration = Duration::from_secs(10);
/// How long accepting rests when the process is out of descriptors.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// Listens for HTTP; give it to `axum::serve`.
#[derive(Debug)]
pub struct HttpListener {
    listener: TcpListener,
    /// The oldest first; some may be gone.
    guests: VecDeque<Weak<Notify>>,
}

impl HttpListener {
    /// Takes a socket that listens.
    #[must_use]
    pub const fn new(listener: TcpListener) -> Self {
        Self { listener, guests: VecDeque::new() }
    }
}

impl axum::serve::Listener for HttpListener {
    type Io = Guest;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Guest, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok((stream, address)) => {
                    self.guests.retain(|guest| guest.strong_count() > 0);
                    while self.guests.len() >= MAX_CONNECTIONS {
                        if let Some(oldest) = self.guests.pop_front().and_then(|guest| guest.upgrade()) {
                            oldest.notify_one();
                        }
                    }
                    let cut = Arc::new(Notify::new());
                    self.guests.push_back(Arc::downgrade(&cut));
                    return (Guest::new(stream, cut), address);
                }
                Err(error) => {
                    tracing::debug!(%error, "cannot accept an HTTP connection");
                    tokio::time::sleep(ACCEPT_REST).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that ends when it is too old, or is cut to make room.
pub struct Guest {
    stream: TcpStream,
    /// Both stay finished once they are.
    over: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// Its place among the guests.
    _place: Arc<Notify>,
}

impl Guest {
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

    /// An error once the connection is over; until then the task is woken when that comes.
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

impl AsyncRead for Guest {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Guest {
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
