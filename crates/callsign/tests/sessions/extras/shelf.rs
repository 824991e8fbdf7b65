//! A package index on loopback, over plain http, that notes what it is asked and can be made to wait.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;

const PYTHON: &str = "/usr/bin/python3";

pub(super) struct Shelf {
    pub(super) address: String,
    shared: Arc<Shared>,
}

struct Shared {
    files: PathBuf,
    asked: Mutex<Vec<String>>,
    /// Files are handed out only when this is not set.
    held: AtomicBool,
    over: AtomicBool,
}

impl Shelf {
    /// Packages are made in `directory`, by the real interpreter. `targets` is what one of them looks for.
    pub(super) fn open(directory: &Path, targets: impl FnOnce(&str) -> Value) -> Self {
        let files = directory.join("index");
        fs::create_dir(&files).expect("a directory");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let wanted = directory.join("targets.json");
        fs::write(&wanted, targets(&address).to_string()).expect("a file");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sessions/extras/make.py");
        let made = Command::new(PYTHON).arg(script).arg(&files).arg(&wanted).status().expect("python3 runs");
        assert!(made.success(), "the packages are not made");
        let shared = Arc::new(Shared {
            files,
            asked: Mutex::default(),
            held: AtomicBool::new(false),
            over: AtomicBool::new(false),
        });
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if serving.over.load(Ordering::SeqCst) {
                    return;
                }
                let shared = Arc::clone(&serving);
                std::thread::spawn(move || shared.serve(stream));
            }
        });
        Self { address, shared }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/simple/", self.address)
    }

    pub(super) fn asked(&self) -> Vec<String> {
        self.shared.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn downloads(&self) -> usize {
        self.asked().iter().filter(|path| path.starts_with("/files/")).count()
    }

    pub(super) fn hold(&self, held: bool) {
        self.shared.held.store(held, Ordering::SeqCst);
    }
}

impl Drop for Shelf {
    fn drop(&mut self) {
        self.hold(false);
        self.shared.over.store(true, Ordering::SeqCst);
        // So that it looks.
        drop(TcpStream::connect(&self.address));
    }
}

impl Shared {
    fn serve(&self, stream: TcpStream) {
        let mut reader = BufReader::new(stream);
        loop {
            let mut first = String::new();
            if reader.read_line(&mut first).unwrap_or(0) == 0 {
                return;
            }
            let mut line = String::new();
            while reader.read_line(&mut line).unwrap_or(0) > 2 {
                line.clear();
            }
            let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
            self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(path.clone());
            let answer = self.answer(&path);
            let (status, kind, body) = match &answer {
                Some((kind, body)) => ("200 OK", *kind, body.as_slice()),
                None => ("404 Not Found", "text/plain", b"nothing".as_slice()),
            };
            let head = format!(
                "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
                body.len()
            );
            let stream = reader.get_mut();
            if stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body)).is_err() {
                return;
            }
        }
    }

    fn answer(&self, path: &str) -> Option<(&'static str, Vec<u8>)> {
        if let Some(file) = path.strip_prefix("/files/") {
            while self.held.load(Ordering::SeqCst) && !self.over.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(10));
            }
            return Some(("application/octet-stream", fs::read(self.files.join(file)).ok()?));
        }
        let name = path.strip_prefix("/simple/")?.strip_suffix('/')?;
        let entries = fs::read_dir(&self.files).ok()?.flatten();
        let files = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let links: Vec<String> = files
            .filter(|file| file.starts_with(&format!("{name}-")))
            .map(|file| format!("<a href=\"/files/{file}\">{file}</a>\n"))
            .collect();
        let links = links.concat();
        let page = format!("<!DOCTYPE html><html><body>{links}</body></html>");
        (!links.is_empty()).then(|| ("text/html", page.into_bytes()))
    }
}
