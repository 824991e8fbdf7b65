use std::ffi::OsStr;
use std::fs;
use std::future::Future;
use std::io::{self, Read as _};
use std::net::Ipv4Addr;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tether::{Hub, Sockets, install};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// How long anything may take that does not wait for something else.
pub(crate) const SOON: Duration = Duration::from_secs(20);
pub(crate) const NAMES: [&str; 4] = [bridge::CONTROL, bridge::MODEL, bridge::MCP, bridge::EGRESS];

/// The program, where every test finds it.
pub(crate) fn program() -> PathBuf {
    install(Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap()
}

pub(crate) fn directory() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// A port that nobody had a moment ago.
pub(crate) fn port() -> u16 {
    std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

/// A bridge outside of any box. It is asked to end when it is dropped, so that its command ends with it.
#[derive(Debug)]
pub(crate) struct Bridge {
    child: Child,
}

impl Bridge {
    pub(crate) fn start(args: &[&str], command: &[&str]) -> Self {
        Self::start_with(args, command, |_| {})
    }

    pub(crate) fn start_with(args: &[&str], command: &[&str], change: impl FnOnce(&mut Command)) -> Self {
        let mut bridge = Command::new(program());
        bridge.args(args).arg("--").args(command);
        bridge.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        change(&mut bridge);
        Self { child: bridge.spawn().unwrap() }
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn send(&self, signal: Signal) {
        send(self.child.id(), signal);
    }

    /// Waits for its end: the code, what it printed, what it complained of.
    #[track_caller]
    pub(crate) fn ended(&mut self, within: Duration) -> (i32, String, String) {
        drop(self.child.stdin.take());
        let code = self.code(within);
        let read = |from: Option<&mut dyn io::Read>| {
            let mut text = String::new();
            from.unwrap().read_to_string(&mut text).unwrap();
            text
        };
        let out = read(self.child.stdout.as_mut().map(|out| out as &mut dyn io::Read));
        let err = read(self.child.stderr.as_mut().map(|err| err as &mut dyn io::Read));
        (code, out, err)
    }

    #[track_caller]
    pub(crate) fn code(&mut self, within: Duration) -> i32 {
        let status = holds(within, || self.child.try_wait().unwrap());
        assert_eq!(status.signal(), None, "the bridge was killed");
        status.code().unwrap()
    }

    /// The next line that the command prints.
    pub(crate) fn line(&mut self) -> String {
        let out = self.child.stdout.as_mut().unwrap();
        let mut line = Vec::new();
        let mut byte = [0; 1];
        while out.read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {
            line.push(byte[0]);
        }
        String::from_utf8(line).unwrap()
    }

    /// In kilobytes.
    pub(crate) fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        let until = Instant::now() + SOON;
        while let Ok(None) = self.child.try_wait() {
            self.send(if Instant::now() < until { Signal::TERM } else { Signal::KILL });
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

pub(crate) fn send(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// What `look` finds, once it finds something.
#[track_caller]
pub(crate) fn holds<T>(within: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + within;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "it did not come to be within {within:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The same where a runtime must go on meanwhile.
pub(crate) async fn comes<T>(within: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + within;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "it did not come to be within {within:?}");
        sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) async fn soon<T>(wanted: impl Future<Output = T>) -> T {
    timeout(SOON, wanted).await.expect("it took too long")
}

/// Processes whose command line holds `mark`.
pub(crate) fn marked(mark: &str) -> Vec<u32> {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let number = |name: &OsStr| name.to_str()?.parse::<u32>().ok();
    all.filter_map(|entry| number(&entry.file_name()))
        .filter(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).replace('\0', " ").contains(mark)
        })
        .collect()
}

/// A daemon's sockets and hub. Dropped, all of it is gone at once, as when a daemon is killed: the files stay.
pub(crate) struct Daemon {
    pub(crate) hub: Arc<Hub>,
    pub(crate) sockets: Sockets,
    pub(crate) tasks: JoinSet<()>,
}

impl Daemon {
    pub(crate) fn start(directory: &Path) -> Self {
        let mut sockets = Sockets::make(directory, &NAMES).unwrap();
        let hub = Arc::new(Hub::new(sockets.take(bridge::CONTROL).unwrap()).unwrap());
        let mut tasks = JoinSet::new();
        let serves = Arc::clone(&hub);
        tasks.spawn(async move { serves.serve().await });
        Self { hub, sockets, tasks }
    }

    pub(crate) fn listener(&mut self, name: &str) -> UnixListener {
        UnixListener::from_std(self.sockets.take(name).unwrap()).unwrap()
    }

    /// Serves a socket: each connection by a task of its own.
    pub(crate) fn serve<F>(&mut self, name: &str, serve: impl Fn(UnixStream) -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = self.listener(name);
        self.tasks.spawn(async move {
            let mut tasks = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                while tasks.try_join_next().is_some() {}
                tasks.spawn(serve(stream));
            }
        });
    }

    /// Sends back what comes, until it ends.
    pub(crate) fn echo(&mut self, name: &str) {
        self.serve(name, |stream| async move {
            let _ended = back(stream).await;
        });
    }
}

pub(crate) async fn back(mut stream: UnixStream) -> io::Result<u64> {
    let (mut from, mut to) = stream.split();
    let copied = tokio::io::copy(&mut from, &mut to).await?;
    to.shutdown().await?;
    Ok(copied)
}

/// A server on a port, each connection by a task of its own.
pub(crate) struct Agent {
    pub(crate) port: u16,
    tasks: JoinSet<()>,
}

impl Agent {
    pub(crate) async fn start<F>(serve: impl Fn(TcpStream) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self::start_at(0, serve).await
    }

    pub(crate) async fn start_at<F>(port: u16, serve: impl Fn(TcpStream) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut tasks = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                while tasks.try_join_next().is_some() {}
                tasks.spawn(serve(stream));
            }
        });
        Self { port, tasks }
    }

    pub(crate) async fn echo() -> Self {
        Self::start(|mut stream| async move {
            let (mut from, mut to) = stream.split();
            let _ended = tokio::io::copy(&mut from, &mut to).await;
            let _ended = to.shutdown().await;
        })
        .await
    }

    /// As if it had been killed.
    pub(crate) async fn end(mut self) {
        self.tasks.shutdown().await;
    }
}

/// Says something to a port of the bridge, ends, and reads all that comes back. Empty where it was closed.
pub(crate) async fn request(port: u16, said: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
    let (mut from, mut to) = stream.split();
    let says = async {
        let _closed = to.write_all(said).await;
        let _closed = to.shutdown().await;
    };
    let mut all = Vec::new();
    let hears = async {
        let _closed = from.read_to_end(&mut all).await;
    };
    tokio::join!(says, hears);
    all
}
