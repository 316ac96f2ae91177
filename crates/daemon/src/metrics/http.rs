//! Answers `GET /metrics` at a [`Listener`].
//!
//! Every user of this machine can connect, so no client can hold up another:
//! requests are limited in length and time, answers in time, and connections in
//! number: a new one replaces the oldest that has not sent its request yet.
//! Every answer ends its connection.

use super::listener::Listener;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::task::AbortHandle;
use tokio::time::sleep;

/// Most connections at a time.
const CONNECTIONS_MAX: usize = 32;
/// Most answers computed at a time: each needs a thread.
const ANSWERS_MAX: usize = 4;
/// Time limit for receiving a request, and for sending an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest request.
const REQUEST_BYTES_MAX: usize = 8 << 10;
/// Most header lines of a request.
const HEADERS_MAX: usize = 64;
/// Pause after accepting a connection failed for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const OPEN_METRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
const PLAIN: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// Computes the text of an answer. It may block.
pub(crate) type Source = Arc<dyn Fn() -> Result<String, String> + Send + Sync>;

/// Serves a listener until this is dropped.
pub(crate) struct Server {
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Answers the clients of `listener` with the text of `source`.
    pub(crate) fn start(listener: Listener, source: Source) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(ANSWERS_MAX)
            .thread_name("metrics client")
            .build()?;
        let (end, ended) = oneshot::channel();
        let socket = {
            let _inside = runtime.enter();
            Socket::new(&listener)?
        };
        let thread = thread::Builder::new().name("metrics".into()).spawn(move || {
            let answers = Answers::new(source);
            runtime.block_on(async {
                tokio::select! {
                    () = socket.accept(&answers) => {}
                    _ = ended => {}
                }
            });
            // Closes all connections, and waits for the answers being computed.
            drop(runtime);
            drop(listener);
        })?;
        Ok(Self { end: Some(end), thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The runtime's view of a listener.
enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Socket {
    /// To be called inside the runtime.
    fn new(listener: &Listener) -> io::Result<Self> {
        match listener {
            Listener::Tcp(listener) => {
                let listener = listener.try_clone()?;
                listener.set_nonblocking(true)?;
                TcpListener::from_std(listener).map(Self::Tcp)
            }
            Listener::Unix { listener, .. } => {
                let listener = listener.try_clone()?;
                listener.set_nonblocking(true)?;
                UnixListener::from_std(listener).map(Self::Unix)
            }
        }
    }

    /// Accepts clients while it is polled.
    async fn accept(&self, answers: &Answers) {
        let mut clients = Clients::default();
        loop {
            let accepted = match self {
                Self::Tcp(listener) => {
                    listener.accept().await.map(|(stream, _)| clients.welcome(stream, answers))
                }
                Self::Unix(listener) => {
                    listener.accept().await.map(|(stream, _)| clients.welcome(stream, answers))
                }
            };
            if let Err(error) = accepted {
                tracing::warn!(%error, "no reader of metrics can be accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// The connections, oldest first.
#[derive(Default)]
struct Clients(VecDeque<Client>);

struct Client {
    task: AbortHandle,
    /// Whether its request has arrived.
    asked: Arc<AtomicBool>,
}

impl Clients {
    /// Serves one more client.
    fn welcome<S>(&mut self, stream: S, answers: &Answers)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        self.0.retain(|client| !client.task.is_finished());
        if self.0.len() >= CONNECTIONS_MAX {
            let silent = self.0.iter().position(|client| !client.asked.load(Ordering::Relaxed));
            if let Some(oldest) = self.0.remove(silent.unwrap_or(0)) {
                oldest.task.abort();
            }
        }
        let asked = Arc::new(AtomicBool::new(false));
        let task = tokio::spawn(converse(stream, answers.clone(), Arc::clone(&asked)));
        self.0.push_back(Client { task: task.abort_handle(), asked });
    }
}

/// Reads one request and answers it.
async fn converse<S>(stream: S, answers: Answers, asked: Arc<AtomicBool>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let answered = Notify::new();
    let service = service_fn(async |request| {
        asked.store(true, Ordering::Relaxed);
        let answer = answers.to(&request).await;
        answered.notify_one();
        Ok::<_, Infallible>(answer)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(REQUEST_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .keep_alive(false)
        // A client may shut down its sending side.
        .half_close(true)
        .title_case_headers(true)
        .serve_connection(TokioIo::new(stream), service);
    let taken_in_time = async {
        answered.notified().await;
        sleep(PATIENCE).await;
    };
    tokio::select! {
        ended = connection => {
            if let Err(error) = ended {
                tracing::debug!(%error, "a reader of metrics went away");
            }
        }
        () = taken_in_time => tracing::debug!("a reader of metrics did not take its answer"),
    }
}

/// Computes answers.
#[derive(Clone)]
struct Answers {
    source: Source,
    /// One for each answer that may be computed now. The permit of a
    /// disconnected client is returned only when the source returns.
    permits: Arc<Semaphore>,
}

impl Answers {
    fn new(source: Source) -> Self {
        Self { source, permits: Arc::new(Semaphore::new(ANSWERS_MAX)) }
    }

    async fn to<B>(&self, request: &Request<B>) -> Response<String> {
        // The part that names a host is for proxies.
        let path = match request.uri().authority() {
            Some(_) => "",
            None => request.uri().path(),
        };
        let (status, kind, text) = match (request.method(), path) {
            (&Method::GET, "/metrics") => match self.text().await {
                Ok(text) => (StatusCode::OK, OPEN_METRICS, text),
                Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, PLAIN, format!("{error}\n")),
            },
            (&Method::GET, _) => (StatusCode::NOT_FOUND, PLAIN, "the metrics are at /metrics\n".into()),
            _ => (StatusCode::METHOD_NOT_ALLOWED, PLAIN, "only GET is answered\n".into()),
        };
        let mut answer = Response::new(text);
        *answer.status_mut() = status;
        answer.headers_mut().insert(CONTENT_TYPE, kind);
        answer
    }

    /// The text of the source, computed on a thread of its own.
    async fn text(&self) -> Result<String, String> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(|error| error.to_string())?;
        let source = Arc::clone(&self.source);
        let made = tokio::task::spawn_blocking(move || {
            let _until_it_is_made = permit;
            source()
        });
        made.await.map_err(|error| error.to_string())?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Address;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::path::{Path, PathBuf};
    use tokio::io::AsyncWriteExt;
    use tokio::time::Instant;

    fn server(dir: &Path, source: Source) -> (Server, PathBuf) {
        let path = dir.join("m.sock");
        let listener = Listener::bind(&Address::Unix(path.clone())).unwrap();
        (Server::start(listener, source).unwrap(), path)
    }

    fn empty() -> Source {
        Arc::new(|| Ok("# EOF\n".into()))
    }

    fn ask(path: &Path, request: &str) -> String {
        let mut stream = UnixStream::connect(path).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn requests_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let (_server, path) = server(dir.path(), empty());
        for (request, status) in [
            ("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "200 OK"),
            ("GET /metrics?x=1 HTTP/1.0\r\n\r\n", "200 OK"),
            ("GET / HTTP/1.1\r\n\r\n", "404 Not Found"),
            ("GET http://x/metrics HTTP/1.1\r\n\r\n", "404 Not Found"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
            ("HEAD /metrics HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
            ("\0\0\0\0", "400 Bad Request"),
        ] {
            let answer = ask(&path, request);
            let version = if request.contains("HTTP/1.0") { "HTTP/1.0" } else { "HTTP/1.1" };
            assert!(answer.starts_with(&format!("{version} {status}\r\n")), "{request:?}: {answer}");
        }
        let answer = ask(&path, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        for header in ["Content-Length: 6", "Content-Type: application/openmetrics-text; version=1.0.0"] {
            assert!(answer.contains(header), "{answer}");
        }
        assert!(answer.contains("Connection: close") && answer.ends_with("\r\n\r\n# EOF\n"), "{answer}");
    }

    #[test]
    fn a_client_that_will_ask_no_more_is_answered() {
        let dir = tempfile::tempdir().unwrap();
        let (_server, path) = server(dir.path(), empty());
        let mut stream = UnixStream::connect(path).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("# EOF\n"), "{answer}");
    }

    #[test]
    fn a_source_that_fails_is_an_error_of_the_server() {
        let dir = tempfile::tempdir().unwrap();
        let (_server, path) = server(dir.path(), Arc::new(|| Err("no figures".into())));
        let answer = ask(&path, "GET /metrics HTTP/1.1\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 500 ") && answer.ends_with("\r\n\r\nno figures\n"), "{answer}");
    }

    #[test]
    fn silent_clients_keep_no_other_out_and_the_end_waits_for_none() {
        let dir = tempfile::tempdir().unwrap();
        let (server, path) = server(dir.path(), empty());
        let silent: Vec<UnixStream> = (0..200).map(|_| UnixStream::connect(&path).unwrap()).collect();
        let answer = ask(&path, "GET /metrics HTTP/1.1\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\n# EOF\n"), "{answer}");
        let endless = "a".repeat(REQUEST_BYTES_MAX + 2048);
        // Closing ends in an error, because a part of the request was not read.
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(endless.as_bytes()).unwrap();
        let mut answer = [0; 13];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 431 ");
        drop(stream);
        drop(server);
        assert!(!path.exists(), "the socket was left");
        for mut stream in silent {
            // The server closed them: there is an end, or an error.
            assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
        }
    }

    /// Duration of a conversation with a client that sends these bytes, and
    /// reads nothing. Time advances at once when there is nothing else to do.
    async fn lasts(sent: &[u8]) -> (Duration, bool) {
        let (mut client, server) = tokio::io::duplex(64);
        let (asked, begun) = (Arc::new(AtomicBool::new(false)), Instant::now());
        let conversation = tokio::spawn(converse(server, Answers::new(empty()), Arc::clone(&asked)));
        client.write_all(sent).await.unwrap();
        conversation.await.unwrap();
        (begun.elapsed(), asked.load(Ordering::Relaxed))
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_neither_asks_nor_takes_its_answer_is_hung_up_on() {
        let in_time = PATIENCE..PATIENCE + Duration::from_millis(10);
        for (sent, asks) in [
            (&b""[..], false),
            (b"GET /metrics HTTP/1.1\r\nHo", false),
            (b"GET /metrics HTTP/1.1\r\n\r\n", true),
        ] {
            let (lasted, asked) = lasts(sent).await;
            assert_eq!(asked, asks);
            assert!(in_time.contains(&lasted), "{sent:?}: {lasted:?}");
        }
    }
}
