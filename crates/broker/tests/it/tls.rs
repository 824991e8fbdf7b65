//! Providers by https.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use broker::{Limits, Outcome};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::task::TaskTracker;

use crate::harness::{Rig, assert_code, assert_status, no_roots, trusting};

/// A server with a certificate of its own for this name, and what one must trust to believe it.
pub(crate) async fn server(name: &str) -> (SocketAddr, rustls::RootCertStore, String) {
    let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
    let certificate = made.cert.der().clone();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(ring)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate).unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let (address, tasks) = (listener.local_addr().unwrap(), TaskTracker::new());
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tasks.clone().spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tasks.spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let mut read = vec![0; 64 * 1024];
                let length = stream.read(&mut read).await.unwrap_or_default();
                let host = String::from_utf8_lossy(&read[..length]).to_lowercase();
                let body = if host.contains("\r\nhost: localhost") { "{\"by\":\"tls\"}" } else { "{}" };
                let head = format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
                let _said = stream.write_all((head + body).as_bytes()).await;
                let _closed = stream.shutdown().await;
            });
        }
    });
    (address, roots, made.cert.pem())
}

#[tokio::test]
async fn a_provider_that_can_be_trusted_is_asked() {
    let (address, roots, _) = server("localhost").await;
    let url = format!("https://localhost:{}/v1", address.port());
    let rig = Rig::with(&url, Limits::default(), trusting(roots));
    let text = rig.post("/v1/chat/completions", "{}").await;
    assert_status(&text, 200);
    assert!(text.ends_with("{\"by\":\"tls\"}"), "{text}");
}

#[tokio::test]
async fn one_that_cannot_be_trusted_is_not() {
    let (address, roots, _) = server("elsewhere.example").await;
    let url = format!("https://localhost:{}/v1", address.port());
    for tls in [no_roots(), trusting(roots)] {
        let rig = Rig::with(&url, Limits::default(), tls);
        let text = rig.post("/v1/chat/completions", "{}").await;
        assert_code(&text, 424, "provider_unusable");
        assert!(text.contains("certificate") && text.contains("localhost"), "{text}");
        assert_eq!(rig.outcome().await, Outcome::NoAnswer);
    }
}
