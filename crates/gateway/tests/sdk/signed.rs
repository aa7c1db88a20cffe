//! Signed requests arrive as they were signed, or the provider would not let them in.

use crate::cases::{DYNAMODB, EC2};
use crate::kit::{Message, Scripted};
use crate::provider::Fault;
use crate::sigv4::verify;
use crate::stage::{Sdk, Stage, Trouble};

const FINE: Trouble = Trouble::Upstream(Fault::None);

async fn arrives_as_signed(sdk: Sdk) {
    let story = Stage::new(sdk, FINE).run().await;
    assert!(story.refusals.is_empty(), "{:?}", story.refusals);
    assert_eq!(story.told.result, "object", "{story:?}");
    assert_eq!((story.attempts, story.effects), (1, 1), "{story:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_json_request_arrives_as_boto3_signed_it() {
    arrives_as_signed(DYNAMODB).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_arrives_as_boto3_signed_it() {
    arrives_as_signed(EC2).await;
}

/// Everything that AWS does is a POST to the same path; what has no token must pass.
async fn passes_without_a_token(sdk: Sdk) {
    let story = Stage::new(sdk, FINE).read().run().await;
    assert!(story.refusals.is_empty(), "{:?}", story.refusals);
    assert_eq!(story.told.result, "object", "{story:?}");
    assert_eq!((story.attempts, story.effects), (1, 0), "{story:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_json_request_without_a_token_passes() {
    passes_without_a_token(DYNAMODB).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_without_a_token_passes() {
    passes_without_a_token(EC2).await;
}

/// The host is signed, so a gateway that rewrites it is no gateway for AWS.
#[tokio::test(flavor = "multi_thread")]
async fn a_rewritten_host_breaks_the_signature() {
    let stage = Stage::new(EC2, FINE).upstream("host = \"rewrite\"");
    let story = stage.run().await;
    assert_eq!(story.effects, 0, "{story:?}");
    assert!(!story.refusals.is_empty(), "{story:?}");
    assert_eq!(story.told.class.as_deref(), Some("ClientError"));
}

/// The provider of these tests would notice: one byte of anything that is signed, and the
/// signature is another's.
#[tokio::test(flavor = "multi_thread")]
async fn a_changed_byte_breaks_the_signature() {
    let upstream = Scripted::start(|mut wire, seen| async move {
        seen.request(&mut wire).await;
    })
    .await;
    let url = format!("http://{}", upstream.address);
    // Nobody answers, so the SDK ends with an error; the request is what counts.
    Stage::new(DYNAMODB, FINE).program(&url).await;
    let signed = upstream.seen.all().remove(0);
    assert_eq!(verify(&signed), Ok(()));
    let changes: [fn(&mut Message); 4] = [
        |request| request.body[0] = b'[',
        |request| request.body.push(b' '),
        |request| request.start = request.start.replace(" / ", " // "),
        |request| {
            let host = request.headers.iter_mut().find(|(name, _)| name == "host");
            host.unwrap().1.push('0');
        },
    ];
    for change in changes {
        let mut changed = signed.clone();
        change(&mut changed);
        assert!(verify(&changed).is_err(), "{changed:?}");
    }
}
