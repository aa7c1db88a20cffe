//! A hashing secret that changes: found out before the first request, not by a second charge.

use http::Method;

use crate::kit::{Call, Gateway, Scripted, Setup, send_to};
use crate::lost::OK;

/// `[secret]` with these files.
fn secrets(setup: &Setup, file: Option<u8>, previous: Option<u8>) -> Setup {
    let key = |name: &str, byte: Option<u8>| {
        let file = byte.map(|byte| {
            let key: Vec<u8> = (byte..byte + 32).collect();
            setup.file(&format!("{byte}.key"), key)
        });
        file.map_or_else(String::new, |file| format!("{name} = \"{file}\"\n"))
    };
    let (file, previous) = (key("file", file), key("previous_file", previous));
    setup.clone().config(&format!("[secret]\n{file}{previous}"))
}

async fn api() -> Scripted {
    Scripted::start(|mut wire, seen| async move {
        while seen.request(&mut wire).await.is_some() {
            wire.send(OK).await;
        }
    })
    .await
}

async fn stop(mut gateway: Gateway) {
    gateway.signal("TERM").await;
    gateway.ended().await;
}

async fn refused(setup: &Setup) -> String {
    match setup.try_start().await {
        Ok(_) => panic!("it starts"),
        Err((status, text)) => {
            assert_eq!(status.code(), Some(1), "{text}");
            text
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_does_not_start_with_a_secret_that_hides_the_stored_keys() {
    let api = api().await;
    let setup = Setup::new(api.address);
    let call = Call::payment("k");
    let before = secrets(&setup, Some(1), None);
    let gateway = before.start().await;
    let first = send_to(gateway.address, &call).await;
    assert_eq!(first.status.as_u16(), 201, "{first:?}");
    stop(gateway).await;
    for (file, setting) in [(Some(2), "secret.previous_file: "), (None, "secret")] {
        let text = refused(&secrets(&setup, file, None)).await;
        assert!(text.contains(setting), "{text}");
    }
    let gateway = secrets(&setup, Some(2), Some(1)).start().await;
    assert!(send_to(gateway.address, &call).await.is_replay());
    stop(gateway).await;
    let text = refused(&secrets(&setup, Some(2), None)).await;
    assert!(text.contains("for another 24 h"), "{text}");
    secrets(&setup, Some(2), Some(1)).start().await;
}

/// A key that is unknown under the old secret: the link in the refusal must lead to its operation,
/// or a client believes that nothing happened and pays under a new key.
#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_outcome_is_found_by_its_link_after_the_secret_changed() {
    let api = Scripted::start(|mut wire, seen| async move {
        seen.request(&mut wire).await;
    })
    .await;
    let setup = Setup::new(api.address);
    let call = Call::payment("k");
    let gateway = secrets(&setup, Some(1), None).start().await;
    let first = send_to(gateway.address, &call).await;
    first.assert_problem(502, "idempotency_outcome_unknown");
    stop(gateway).await;
    let gateway = secrets(&setup, Some(2), Some(1)).start().await;
    let retry = send_to(gateway.address, &call).await;
    retry.assert_problem(409, "idempotency_outcome_unknown");
    for refusal in [first, retry] {
        let problem = refusal.json();
        let link = problem["operation"].as_str().expect("a link");
        let ask = Call::new(Method::GET, link).header("authorization", "Bearer alice");
        let status = send_to(gateway.address, &ask).await.json();
        assert_eq!(status["state"], "unknown", "{status}");
    }
    assert_eq!(api.seen.all().len(), 1);
}

/// The documented way from the store's own secret to one in a file.
#[tokio::test(flavor = "multi_thread")]
async fn the_stores_own_secret_can_be_replaced() {
    let api = api().await;
    let setup = Setup::new(api.address);
    let call = Call::payment("k");
    let gateway = setup.start().await;
    let first = send_to(gateway.address, &call).await;
    assert_eq!(first.status.as_u16(), 201, "{first:?}");
    stop(gateway).await;
    let text = refused(&secrets(&setup, Some(2), None)).await;
    assert!(text.contains("secret.previous_file: "), "{text}");
    let kept = std::fs::read(setup.path("data").join("secret")).expect("a secret");
    let previous = setup.file("own.key", &kept[..32]);
    let new = setup.file("new.key", (2..34).collect::<Vec<u8>>());
    let config = format!("[secret]\nfile = \"{new}\"\nprevious_file = \"{previous}\"\n");
    let gateway = setup.config(&config).start().await;
    assert!(send_to(gateway.address, &call).await.is_replay());
}
