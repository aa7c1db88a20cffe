//! The proxy breaks things at the place it was told to, and nowhere else.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "helpers of a test"
)]

mod echo;

use std::io::ErrorKind;
use std::time::Duration;

use echo::{connect, exact, rest, start};
use onlyonce_conformance::FaultProxy;
use onlyonce_conformance::fault_proxy::{Fault, Plan};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A proxy that changes what it passes would make every other test here meaningless.
#[tokio::test]
async fn what_passes_is_unchanged_both_ways_and_counted() {
    let (_echo, proxy) = start().await;
    let sent: Vec<u8> = (0_u32..100_000).map(|byte| byte.to_be_bytes()[3]).collect();
    let (mut reader, mut writer) = connect(&proxy).await.into_split();
    let (to_send, expected) = (sent.clone(), sent.len());
    tokio::spawn(async move {
        writer.write_all(&to_send).await.unwrap();
        writer.shutdown().await.unwrap();
    });
    let mut received = Vec::new();
    reader.read_to_end(&mut received).await.unwrap();
    assert!(received == sent);
    let counts = proxy.until(|counts| counts.ended == 1).await;
    assert_eq!(counts.connections, 1);
    assert_eq!(counts.bytes_to_server, u64::try_from(expected).unwrap());
    assert_eq!(counts.bytes_to_client, u64::try_from(expected).unwrap());
    assert_eq!(counts.faults, 0);
}

/// The fault that double-executes: the server did it, and the client sees a reset.
#[tokio::test]
async fn a_cut_answer_reaches_the_server_and_resets_the_client() {
    let (mut echo, proxy) = start().await;
    proxy.set(Plan::cut_the_answer()).await;
    let mut client = connect(&proxy).await;
    client.write_all(b"charge").await.unwrap();
    let (bytes, end) = rest(&mut client).await;
    assert_eq!(bytes, b"");
    assert_eq!(end, Some(ErrorKind::ConnectionReset));
    echo.until_received(b"charge").await;
    assert_eq!(proxy.counts().bytes_to_client, 0);
    assert_eq!(proxy.counts().faults, 1);
}

/// A client that retries at once must find the fault gone, without racing the test.
#[tokio::test]
async fn a_fault_for_one_connection_lets_the_next_through() {
    let (_echo, proxy) = start().await;
    proxy.set(Plan::cut_the_answer().once()).await;
    let mut first = connect(&proxy).await;
    first.write_all(b"first").await.unwrap();
    assert_eq!(rest(&mut first).await.1, Some(ErrorKind::ConnectionReset));
    let mut second = connect(&proxy).await;
    second.write_all(b"second").await.unwrap();
    assert_eq!(exact(&mut second, 6).await, b"second");
    assert_eq!(proxy.plan(), Plan::PASS);
}

/// A request cut at an exact byte: the server must never see one more.
#[tokio::test]
async fn a_reset_towards_the_server_comes_after_exactly_its_bytes() {
    let (mut echo, proxy) = start().await;
    proxy.set(Plan::to_server(Fault::ResetAfter(4))).await;
    let mut client = connect(&proxy).await;
    client.write_all(b"charged twice").await.unwrap();
    assert_eq!(rest(&mut client).await.1, Some(ErrorKind::ConnectionReset));
    echo.until_received(b"char").await;
    echo.until_ended(1).await;
    assert_eq!(proxy.counts().bytes_to_server, 4);
}

/// An answer cut at an exact byte must not pass for a whole one.
#[tokio::test]
async fn a_reset_towards_the_client_comes_after_exactly_its_bytes() {
    let (_echo, proxy) = start().await;
    proxy.set(Plan::to_client(Fault::ResetAfter(3))).await;
    let mut client = connect(&proxy).await;
    client.write_all(b"answer").await.unwrap();
    let (bytes, end) = rest(&mut client).await;
    assert!(b"ans".starts_with(&bytes), "{bytes:?}");
    assert_eq!(end, Some(ErrorKind::ConnectionReset));
    assert_eq!(proxy.counts().bytes_to_client, 3);
}

/// A failover resets what is open, idle connections of a pool included.
#[tokio::test]
async fn a_reset_after_nothing_ends_open_connections() {
    let (_echo, proxy) = start().await;
    let mut idle = connect(&proxy).await;
    idle.write_all(b"warm").await.unwrap();
    exact(&mut idle, 4).await;
    proxy.set(Plan::both(Fault::ResetAfter(0))).await;
    assert_eq!(rest(&mut idle).await.1, Some(ErrorKind::ConnectionReset));
}

/// A half-open peer: it takes everything and says nothing.
#[tokio::test]
async fn a_black_hole_swallows_one_way_and_leaves_the_other() {
    let (mut echo, proxy) = start().await;
    let mut client = connect(&proxy).await;
    proxy.set(Plan::to_client(Fault::Blackhole)).await;
    client.write_all(b"lost").await.unwrap();
    echo.until_received(b"lost").await;
    proxy.until(|counts| counts.faults == 1).await;
    proxy.set(Plan::to_server(Fault::Blackhole)).await;
    client.write_all(b"gone").await.unwrap();
    proxy.until(|counts| counts.faults == 2).await;
    proxy.mend().await;
    client.write_all(b"back").await.unwrap();
    assert_eq!(exact(&mut client, 4).await, b"back");
    echo.until_received(b"lostback").await;
}

/// What a pause holds is late, not lost.
#[tokio::test]
async fn a_pause_holds_bytes_until_it_ends() {
    let (mut echo, proxy) = start().await;
    let mut client = connect(&proxy).await;
    client.write_all(b"one").await.unwrap();
    exact(&mut client, 3).await;
    proxy.set(Plan::both(Fault::Pause)).await;
    client.write_all(b"two").await.unwrap();
    assert_eq!(proxy.counts().bytes_to_server, 3);
    proxy.mend().await;
    assert_eq!(exact(&mut client, 3).await, b"two");
    echo.until_received(b"onetwo").await;
}

/// A delay is at least as long as it says, each way.
#[tokio::test]
async fn a_delay_holds_every_piece_each_way() {
    const DELAY: Duration = Duration::from_millis(40);
    let (_echo, proxy) = start().await;
    proxy.set(Plan::both(Fault::Delay(DELAY))).await;
    let mut client = connect(&proxy).await;
    let before = tokio::time::Instant::now();
    client.write_all(b"late").await.unwrap();
    assert_eq!(exact(&mut client, 4).await, b"late");
    assert!(before.elapsed() >= 2 * DELAY);
    assert_eq!(proxy.counts().faults, 2);
}

/// Mending the network must not leave a test waiting for an hour's delay.
#[tokio::test]
async fn a_delay_ends_when_the_plan_changes() {
    let (_echo, proxy) = start().await;
    let hour = Duration::from_secs(3_600);
    proxy.set(Plan::both(Fault::Delay(hour))).await;
    let mut client = connect(&proxy).await;
    client.write_all(b"late").await.unwrap();
    proxy.until(|counts| counts.faults == 1).await;
    proxy.mend().await;
    assert_eq!(exact(&mut client, 4).await, b"late");
}

/// A slow line is slow, and loses nothing.
#[tokio::test]
async fn a_limited_line_takes_its_time_and_passes_everything() {
    let (_echo, proxy) = start().await;
    proxy
        .set(Plan::to_server(Fault::BytesPerSecond(10_000)))
        .await;
    let mut client = connect(&proxy).await;
    let before = tokio::time::Instant::now();
    client.write_all(&[7; 1_000]).await.unwrap();
    assert_eq!(exact(&mut client, 1_000).await, [7; 1_000]);
    assert!(before.elapsed() >= Duration::from_millis(95));
}

/// A server that dies after half an answer closes it; the client may still be sending.
#[tokio::test]
async fn a_half_close_ends_one_way_and_leaves_the_other() {
    let (mut echo, proxy) = start().await;
    proxy.set(Plan::to_client(Fault::CloseAfter(2))).await;
    let mut client = connect(&proxy).await;
    client.write_all(b"half").await.unwrap();
    assert_eq!(rest(&mut client).await, (b"ha".to_vec(), None));
    client.write_all(b"more").await.unwrap();
    echo.until_received(b"halfmore").await;
}

/// A store that is down refuses; one that comes back is on the same port.
#[tokio::test]
async fn refused_connections_fail_until_the_plan_changes() {
    let (_echo, proxy) = start().await;
    let mut open = connect(&proxy).await;
    open.write_all(b"open").await.unwrap();
    exact(&mut open, 4).await;
    for _ in 0..3 {
        proxy.set(Plan::refuse()).await;
        let refused = TcpStream::connect(proxy.address()).await;
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
        open.write_all(b"still").await.unwrap();
        assert_eq!(exact(&mut open, 5).await, b"still");
        proxy.mend().await;
        let mut again = connect(&proxy).await;
        again.write_all(b"again").await.unwrap();
        assert_eq!(exact(&mut again, 5).await, b"again");
    }
}

/// A test that ends must leave neither a connection nor a port behind.
#[tokio::test]
async fn dropping_the_proxy_ends_its_connections() {
    let (mut echo, proxy) = start().await;
    let mut client = connect(&proxy).await;
    client.write_all(b"open").await.unwrap();
    exact(&mut client, 4).await;
    let address = proxy.address();
    drop(proxy);
    assert_eq!(rest(&mut client).await.0, b"");
    echo.until_ended(1).await;
    let refused = TcpStream::connect(address).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

/// A server that is not there looks like one that hung up.
#[tokio::test]
async fn a_server_that_is_not_there_resets_the_client() {
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = gone.local_addr().unwrap();
    drop(gone);
    let proxy = FaultProxy::start(address).unwrap();
    let mut client = connect(&proxy).await;
    assert_eq!(rest(&mut client).await.1, Some(ErrorKind::ConnectionReset));
    assert_eq!(proxy.counts().connections, 0);
}
