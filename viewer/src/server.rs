//! The server: this machine alone, an address with a secret in it, a thread a connection.

mod connection;
mod guard;

use crate::pages::Site;
use crate::recordings::Recordings;
use connection::Connection;
use guard::Token;
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How many connections there are at once. A browser has six.
const MOST: usize = 64;
/// How long nothing is accepted where the system has no more to give.
const PAUSE: Duration = Duration::from_millis(50);

/// A server that nobody knows of yet.
pub struct Server {
    listener: TcpListener,
    token: Token,
    port: u16,
}

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The port is another one's.
    #[error("cannot listen on port {port}: it is taken")]
    Taken {
        /// Which.
        port: u16,
    },
    /// The kernel refuses it.
    #[error("cannot listen on port {port}")]
    Refused {
        /// Which; 0 is any.
        port: u16,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// There is nothing to make a secret of.
    #[error("cannot read /dev/urandom")]
    NoSecret(#[source] io::Error),
    /// There can be no thread.
    #[error("cannot start a thread for the server")]
    NoThread(#[source] io::Error),
}

impl Server {
    /// One that listens on `port`, or on any that is free. Nothing is answered before [`Server::start`].
    ///
    /// # Errors
    /// If the port is taken, or the kernel refuses something.
    pub fn bind(port: Option<u16>) -> Result<Server, ServeError> {
        let port = port.unwrap_or(0);
        let listener = TcpListener::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)).map_err(|err| {
            match err.kind() {
                io::ErrorKind::AddrInUse => ServeError::Taken { port },
                _ => ServeError::Refused { port, source: err },
            }
        })?;
        let bound = listener.local_addr().map_err(|source| ServeError::Refused { port, source })?;
        Ok(Server { listener, token: Token::random().map_err(ServeError::NoSecret)?, port: bound.port() })
    }

    /// The port that it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address of the first page, secret and all.
    pub fn address(&self) -> String {
        format!("http://127.0.0.1:{}/{}/", self.port, self.token)
    }

    /// Answers from now on, on threads of its own, as long as the process lives.
    ///
    /// # Errors
    /// If there can be no thread.
    pub fn start(self, recordings: Arc<dyn Recordings>) -> Result<(), ServeError> {
        let serve = move || {
            let (site, slots) = (Arc::new(Site::new(recordings)), Arc::new(Slots::default()));
            let token = Arc::new(self.token);
            for stream in self.listener.incoming() {
                let Ok(stream) = stream else {
                    // No descriptor is left, or no memory: there will be, when a connection ends.
                    std::thread::park_timeout(PAUSE);
                    continue;
                };
                let Some(slot) = Slots::take(&slots, &stream) else { continue };
                let connection = Connection::new(stream, token.clone(), site.clone());
                let work = move || connection.serve(&slot.has_token);
                // Without a thread, the connection ends.
                let _none = std::thread::Builder::new().name("page".to_owned()).spawn(work);
            }
        };
        let started = std::thread::Builder::new().name("server".to_owned()).spawn(serve);
        started.map(drop).map_err(ServeError::NoThread)
    }
}

/// The connections that there are, oldest first.
#[derive(Default)]
struct Slots {
    open: Mutex<Vec<Open>>,
    /// The number of the next one: none comes twice, since who has gone may not know it yet.
    next: AtomicU64,
}

struct Open {
    id: u64,
    /// A name of its socket, to end it by.
    stream: TcpStream,
    has_token: Arc<AtomicBool>,
}

/// The place of a connection, while it lasts.
struct Slot {
    id: u64,
    slots: Arc<Slots>,
    /// Whether it has shown the secret.
    has_token: Arc<AtomicBool>,
}

impl Slots {
    /// A place for `stream`: where there are too many, that of the oldest that has not shown the secret; none
    /// if all have.
    fn take(slots: &Arc<Slots>, stream: &TcpStream) -> Option<Slot> {
        let mut open = slots.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() >= MOST {
            let at = open.iter().position(|open| !open.has_token.load(Ordering::Relaxed))?;
            let _gone = open.remove(at).stream.shutdown(Shutdown::Both);
        }
        let id = slots.next.fetch_add(1, Ordering::Relaxed);
        let has_token = Arc::new(AtomicBool::new(false));
        open.push(Open { id, stream: stream.try_clone().ok()?, has_token: has_token.clone() });
        Some(Slot { id, slots: slots.clone(), has_token })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut open = self.slots.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|open| open.id != self.id);
    }
}

#[cfg(test)]
mod tests;
