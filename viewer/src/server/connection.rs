//! A connection: hyper on a thread of its own, with deadlines.
//!
//! hyper asks for bytes and says when it has some, and is told when there may be more: what it is not given
//! at once, `poll(2)` waits for. There is one deadline for a whole head, however it drips in, and one for a
//! whole answer, however slowly it is read.

use super::guard::{self, Token};
use crate::pages::{Answer, Site};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{self, HeaderValue};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::{Method, Request, Response, StatusCode};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::cell::Cell;
use std::convert::Infallible;
use std::future::Future as _;
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::AsFd as _;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// How long a head may take, from the first moment on that one could come.
const HEAD: Duration = Duration::from_secs(10);
/// How long an answer may take to be read, and for each megabyte.
const ANSWER: Duration = Duration::from_secs(30);
const MEGABYTE: Duration = Duration::from_secs(1);
/// Bytes that a head has at most.
const HEAD_BYTES: usize = 8 << 10;

/// A connection that was accepted.
pub struct Connection {
    stream: TcpStream,
    token: Arc<Token>,
    site: Arc<Site>,
}

impl Connection {
    /// With those who know `token`.
    pub fn new(stream: TcpStream, token: Arc<Token>, site: Arc<Site>) -> Connection {
        Connection { stream, token, site }
    }

    /// Answers until the other end has enough, or takes too long.
    pub fn serve(&self, has_token: &AtomicBool) {
        if self.stream.set_nonblocking(true).is_err() || self.stream.set_nodelay(true).is_err() {
            return;
        }
        let state = Rc::new(State::new());
        let service = hyper::service::service_fn(|request: Request<Incoming>| {
            let response = self.response(&request, has_token, &state);
            std::future::ready(Ok::<_, Infallible>(response))
        });
        let mut http = hyper::server::conn::http1::Builder::new();
        // Who says no more is answered all the same.
        http.max_buf_size(HEAD_BYTES).header_read_timeout(None).half_close(true);
        let io = Io { stream: &self.stream, state: state.clone() };
        let mut served = pin!(http.serve_connection(io, service));
        let woken = Arc::new(Woken(AtomicBool::new(false)));
        let waker = Waker::from(woken.clone());
        while served.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            if !woken.0.swap(false, Ordering::Relaxed) && !self.wait(&state) {
                return;
            }
        }
    }

    /// Waits until there may be something to do; not longer than the deadline.
    fn wait(&self, state: &State) -> bool {
        let [reads, writes] = [state.reads.take(), state.writes.take()];
        // An answer is over when it is written, and a head can come again.
        if !writes && state.is_answering.get() && Rc::strong_count(&state.body) == 1 {
            state.is_answering.set(false);
            state.deadline.set(Instant::now() + HEAD);
        }
        let mut events = PollFlags::empty();
        events.set(PollFlags::POLLIN, reads);
        events.set(PollFlags::POLLOUT, writes);
        let left = state.deadline.get().saturating_duration_since(Instant::now());
        let left = i32::try_from(left.as_millis()).unwrap_or(i32::MAX);
        let mut polled = [PollFd::new(self.stream.as_fd(), events)];
        left > 0
            && matches!(poll(&mut polled, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)), Ok(1))
    }

    /// Answers a request.
    fn response(
        &self,
        request: &Request<Incoming>,
        has_token: &AtomicBool,
        state: &State,
    ) -> Response<Content> {
        let path = self.token.behind(request.uri().path());
        has_token.fetch_or(path.is_some(), Ordering::Relaxed);
        let is_asking = [Method::GET, Method::HEAD].contains(request.method());
        let answer = match path {
            None => Answer::refused(404),
            Some(_) if !guard::is_ours(request.headers()) => Answer::refused(403),
            Some(_) if !is_asking => Answer::refused(405),
            Some(_) if !request.body().is_end_stream() => Answer::refused(413),
            Some(path) => self.site.answer(path, request.uri().query()),
        };
        let n_megabytes = u32::try_from(answer.bytes.len() >> 20).unwrap_or(u32::MAX);
        state.deadline.set(Instant::now() + ANSWER + MEGABYTE.saturating_mul(n_megabytes));
        state.is_answering.set(true);
        let is_ok = answer.status < 400;
        let mut response = Response::new(Content { bytes: Some(answer.bytes), _alive: state.body.clone() });
        *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::NOT_FOUND);
        let headers = response.headers_mut();
        guard::protect(headers);
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(answer.kind));
        if let Some(to) = answer.location.and_then(|to| HeaderValue::from_str(&to).ok()) {
            headers.insert(header::LOCATION, to);
        }
        if let Some(name) = answer.file {
            headers.insert(header::CONTENT_DISPOSITION, HeaderValue::from_static(name));
        }
        if !is_ok {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        if answer.status == 405 {
            headers.insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        }
        response
    }
}

/// Where a connection stands.
struct State {
    deadline: Cell<Instant>,
    /// Whether an answer was given that is perhaps not all read.
    is_answering: Cell<bool>,
    /// Whether bytes were asked for that were not there, or not taken.
    reads: Cell<bool>,
    writes: Cell<bool>,
    /// Of which contents have a copy, as long as they are not written.
    body: Rc<()>,
}

impl State {
    fn new() -> State {
        State {
            deadline: Cell::new(Instant::now() + HEAD),
            is_answering: Cell::new(false),
            reads: Cell::new(false),
            writes: Cell::new(false),
            body: Rc::new(()),
        }
    }
}

/// Whether hyper wants to go on at once.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The bytes of an answer.
struct Content {
    bytes: Option<Bytes>,
    _alive: Rc<()>,
}

impl Body for Content {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.bytes.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.as_ref().is_none_or(Bytes::is_empty)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}

/// The socket, as hyper has it.
struct Io<'a> {
    stream: &'a TcpStream,
    state: Rc<State>,
}

/// Done; or not now, which is noted in `waits`.
fn now_or_later<T>(done: io::Result<T>, waits: &Cell<bool>) -> Poll<io::Result<T>> {
    match done {
        Err(err) if matches!(err.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
            waits.set(true);
            Poll::Pending
        }
        done => Poll::Ready(done),
    }
}

impl Read for Io<'_> {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut to: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut buffer = [0; 2048];
        let room = to.remaining().min(buffer.len());
        let mut stream = self.stream;
        let read = stream.read(buffer.get_mut(..room).unwrap_or_default());
        now_or_later(read, &self.state.reads).map_ok(|n| to.put_slice(buffer.get(..n).unwrap_or_default()))
    }
}

impl Write for Io<'_> {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut stream = self.stream;
        now_or_later(stream.write(bytes), &self.state.writes)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let _gone = self.stream.shutdown(std::net::Shutdown::Write);
        Poll::Ready(Ok(()))
    }
}
