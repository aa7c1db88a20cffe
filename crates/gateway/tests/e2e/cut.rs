//! Answers cut at every byte. Half a receipt stored as a whole one would be replayed for a day.

use crate::kit::{Call, Scripted, Setup, UNKNOWN, send_to};

const CONTENT_LENGTH: &str =
    "HTTP/1.1 201 Created\r\ncontent-type: text/plain\r\ncontent-length: 12\r\n\r\npaid 12 EUR.";
const CHUNKED: &str = "HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\n\r\n\
     5\r\npaid \r\n7\r\n12 EUR.\r\n0\r\n\r\n";
const CLOSE_DELIMITED: &str =
    "HTTP/1.1 201 Created\r\ncontent-type: text/plain\r\n\r\npaid 12 EUR.";

/// An upstream that answers as `/CUT/HOW/…` says: so many bytes, then FIN or RST.
async fn cutting(answer: &'static str) -> Scripted {
    Scripted::start(move |mut wire, seen| async move {
        let Some(request) = seen.request(&mut wire).await else {
            return;
        };
        let mut words = request.header("x-cut").split(' ');
        let cut: usize = words.next().expect("a cut").parse().expect("a number");
        wire.send(&answer.as_bytes()[..cut]).await;
        if words.next() == Some("RST") {
            // Given time to be read, or the reset could overtake the bytes before it.
            tokio::time::sleep(std::time::Duration::from_millis(3)).await;
            wire.reset();
        } else {
            wire.finish().await;
            wire.rest().await;
        }
    })
    .await
}

/// Cuts at every byte, with `how`, and asserts that an answer cut before `whole` is unknown and
/// never asked for again, and that any other is stored with `stored` of its bytes as the body.
async fn cut_everywhere(answer: &'static str, how: &str, whole: usize, body: fn(usize) -> String) {
    let upstream = cutting(answer).await;
    let gateway = Setup::new(upstream.address).start().await;
    for cut in 0..=answer.len() {
        let key = format!("cut-{cut}");
        let call = Call::payment(&key).header("x-cut", &format!("{cut} {how}"));
        let first = send_to(gateway.address, &call).await;
        let retry = send_to(gateway.address, &call).await;
        if cut < whole {
            first.assert_problem(502, UNKNOWN);
            retry.assert_problem(409, UNKNOWN);
        } else {
            assert_eq!(
                (first.status.as_u16(), first.is_replay()),
                (201, false),
                "{cut}"
            );
            assert_eq!(first.body, body(cut), "{cut}");
            assert_eq!(
                (retry.status.as_u16(), retry.is_replay()),
                (201, true),
                "{cut}"
            );
            assert_eq!(retry.body, first.body);
        }
        assert_eq!(upstream.seen.count(&key), 1, "{cut}: {how} asked again");
    }
}

fn paid(_: usize) -> String {
    "paid 12 EUR.".into()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_counted_answer_is_stored_only_with_its_last_byte() {
    for how in ["FIN", "RST"] {
        cut_everywhere(CONTENT_LENGTH, how, CONTENT_LENGTH.len(), paid).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chunked_answer_is_stored_only_with_its_last_chunk() {
    for how in ["FIN", "RST"] {
        cut_everywhere(CHUNKED, how, CHUNKED.len(), paid).await;
    }
}

/// A reset is not the end of an answer that ends with the connection: not even of one that
/// happens to be complete, for nobody can tell.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_until_the_close_is_never_stored_after_a_reset() {
    let never = CLOSE_DELIMITED.len() + 1;
    cut_everywhere(CLOSE_DELIMITED, "RST", never, paid).await;
}

/// With FIN the connection's end *is* the answer's end, wherever it comes: HTTP gives no way to
/// tell a cut from an end there. What is stored is what the first client saw.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_until_the_close_ends_with_the_close() {
    let head = CLOSE_DELIMITED.find("paid").expect("a body");
    cut_everywhere(CLOSE_DELIMITED, "FIN", head, |cut| {
        let head = CLOSE_DELIMITED.find("paid").expect("a body");
        CLOSE_DELIMITED[head..cut].to_owned()
    })
    .await;
}

/// Chunks that make no sense are no answer either.
#[tokio::test(flavor = "multi_thread")]
async fn a_malformed_answer_is_unknown_and_never_asked_for_again() {
    for answer in [
        "HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\n\r\nzz\r\npaid\r\n0\r\n\r\n",
        "HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\npaid",
        "HTTP/1.1 201 Created\r\ncontent-length: 4\r\ncontent-length: 5\r\n\r\npaid!",
        "HTTP/1.1 201 Created\r\ncontent-length: -4\r\n\r\npaid",
        "HTTP/1.1 999999 Created\r\n\r\n",
        "SSH-2.0-OpenSSH_9.6\r\n\r\n",
        "\0\0\0\0\r\n\r\n",
    ] {
        let upstream = cutting(answer).await;
        let gateway = Setup::new(upstream.address).start().await;
        let call = Call::payment("k").header("x-cut", &format!("{} FIN", answer.len()));
        let first = send_to(gateway.address, &call).await;
        first.assert_problem(502, UNKNOWN);
        let retry = send_to(gateway.address, &call).await;
        retry.assert_problem(409, UNKNOWN);
        assert_eq!(upstream.seen.count("k"), 1, "{answer:?}");
    }
}
