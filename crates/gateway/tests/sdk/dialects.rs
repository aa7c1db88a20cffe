//! What each provider says, as far as its SDK needs it to return a normal object.

use serde_json::{Value, json};

use crate::kit::Message;
use crate::sigv4;

/// A provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    Stripe,
    Square,
    ModernTreasury,
    GoCardless,
    Adyen,
    DynamoDb,
    Ec2,
}

/// An answer.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    status: u16,
    content_type: &'static str,
    body: String,
}

impl Reply {
    #[expect(clippy::needless_pass_by_value, reason = "`json!` makes values")]
    fn json(status: u16, body: Value) -> Self {
        Self {
            status,
            content_type: "application/json",
            body: body.to_string(),
        }
    }

    fn xml(status: u16, body: &str) -> Self {
        Self {
            status,
            content_type: "text/xml;charset=UTF-8",
            body: format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{body}"),
        }
    }

    /// As it is sent.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let Self {
            status,
            content_type,
            body,
        } = self;
        let length = body.len();
        format!(
            "HTTP/1.1 {status} OK\r\ncontent-type: {content_type}\r\n\
             content-length: {length}\r\n\r\n{body}"
        )
        .into_bytes()
    }
}

impl Dialect {
    /// The key of a request, where this provider looks for it. A request without one is one
    /// operation of its own, so nothing is deduped there.
    pub(crate) fn key(self, request: &Message) -> String {
        let key = match self {
            Self::Stripe | Self::ModernTreasury | Self::GoCardless | Self::Adyen => {
                request.header("idempotency-key").to_owned()
            }
            Self::Square => text(&body(request)["idempotency_key"]),
            Self::DynamoDb => text(&body(request)["ClientRequestToken"]),
            Self::Ec2 => field(request, "ClientToken"),
        };
        assert!(!key.is_empty(), "no key in {request:?}");
        key
    }

    /// The new object.
    pub(crate) fn created(self, request: &Message) -> Reply {
        match self {
            Self::Stripe => Reply::json(200, payment_intent(&field(request, "amount"))),
            Self::Square => Reply::json(200, square_payment(&body(request))),
            Self::ModernTreasury => Reply::json(201, payment_order(&body(request)["amount"])),
            Self::GoCardless => Reply::json(201, payment(&body(request)["payments"]["amount"])),
            Self::Adyen => Reply::json(
                200,
                json!({
                    "pspReference": "PSP1", "resultCode": "Authorised",
                    "merchantReference": "o1", "amount": body(request)["amount"],
                }),
            ),
            Self::DynamoDb => Reply {
                content_type: "application/x-amz-json-1.0",
                ..Reply::json(
                    200,
                    json!({"ConsumedCapacity": [{"TableName": "orders", "CapacityUnits": 2.0}]}),
                )
            },
            Self::Ec2 => Reply::xml(200, &reservation(&field(request, "ImageId"))),
        }
    }

    /// What a key gets that made this already.
    pub(crate) fn repeated(self, first: &Reply) -> Reply {
        if self != Self::GoCardless {
            return first.clone();
        }
        let conflict = json!({
            "reason": "idempotent_creation_conflict",
            "message": "A resource has already been created with this idempotency key",
            "links": {"conflicting_resource_id": "PM1"},
        });
        Reply::json(
            409,
            json!({"error": {
                "type": "invalid_state", "code": 409, "errors": [conflict],
                "message": "A resource has already been created with this idempotency key",
                "documentation_url": "https://developer.example", "request_id": "r1",
            }}),
        )
    }

    /// The answer to a request that changes nothing.
    pub(crate) fn fetched(self, request: &Message) -> Option<Reply> {
        match self {
            Self::GoCardless if request.start.starts_with("GET /payments/PM1 ") => {
                Some(Reply::json(200, payment(&json!(1200))))
            }
            Self::DynamoDb if request.header("x-amz-target").ends_with(".GetItem") => {
                Some(Reply::json(200, json!({"Item": {"id": {"S": "o1"}}})))
            }
            Self::Ec2 if field(request, "Action") == "DescribeInstances" => {
                let space = "xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\"";
                let body = format!(
                    "<DescribeInstancesResponse {space}><requestId>r1</requestId>\
                     <reservationSet/></DescribeInstancesResponse>"
                );
                Some(Reply::xml(200, &body))
            }
            Self::Stripe
            | Self::Square
            | Self::ModernTreasury
            | Self::GoCardless
            | Self::Adyen
            | Self::DynamoDb
            | Self::Ec2 => None,
        }
    }

    /// An error of the provider's own.
    pub(crate) fn failed(self) -> Reply {
        let text = "Something went wrong";
        match self {
            Self::Stripe => Reply::json(
                500,
                json!({"error": {"type": "api_error", "message": text}}),
            ),
            Self::Square => Reply::json(
                500,
                json!({"errors": [{
                    "category": "API_ERROR", "code": "INTERNAL_SERVER_ERROR", "detail": text,
                }]}),
            ),
            Self::ModernTreasury => Reply::json(
                500,
                json!({"errors": {"code": "internal_error", "message": text}}),
            ),
            Self::GoCardless => Reply::json(
                500,
                json!({"error": {
                    "type": "gocardless", "code": 500, "errors": [], "message": text,
                    "documentation_url": "https://developer.example", "request_id": "r1",
                }}),
            ),
            Self::Adyen => Reply::json(
                500,
                json!({
                    "status": 500, "errorCode": "000", "message": text, "errorType": "internal",
                }),
            ),
            Self::DynamoDb => dynamodb_error(500, "InternalServerError", text),
            Self::Ec2 => ec2_error(500, "InternalError", text),
        }
    }

    /// Whether a request may come in: where requests are signed, whether it is as it was signed.
    pub(crate) fn admits(self, request: &Message) -> Result<(), String> {
        let is_signed = matches!(self, Self::DynamoDb | Self::Ec2);
        if is_signed {
            sigv4::verify(request)
        } else {
            Ok(())
        }
    }

    /// What a request gets that may not come in.
    pub(crate) fn refused(self) -> Reply {
        let text = "The request signature we calculated does not match";
        if self == Self::DynamoDb {
            return dynamodb_error(400, "InvalidSignatureException", text);
        }
        ec2_error(403, "SignatureDoesNotMatch", text)
    }
}

fn body(request: &Message) -> Value {
    serde_json::from_slice(&request.body).expect("JSON")
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A field of a form. None that is asked for has an escape in it.
fn field(request: &Message, name: &str) -> String {
    let form = request.text();
    let mut pairs = form.split('&').filter_map(|pair| pair.split_once('='));
    let found = pairs.find_map(|(known, value)| (known == name).then(|| value.to_owned()));
    found.unwrap_or_default()
}

fn payment_intent(amount: &str) -> Value {
    json!({
        "id": "pi_1", "object": "payment_intent", "status": "requires_payment_method",
        "amount": amount.parse::<i64>().expect("an amount"), "currency": "eur",
        "amount_capturable": 0, "amount_received": 0, "created": 1_767_225_600,
        "capture_method": "automatic", "confirmation_method": "automatic",
        "livemode": false, "metadata": {"order": "o1"}, "payment_method_types": ["card"],
    })
}

fn square_payment(asked: &Value) -> Value {
    json!({"payment": {
        "id": "sq1", "status": "COMPLETED", "source_type": "CARD",
        "amount_money": asked["amount_money"], "location_id": "l1",
    }})
}

fn payment_order(amount: &Value) -> Value {
    json!({
        "id": "po1", "object": "payment_order", "amount": amount, "currency": "USD",
        "direction": "credit", "type": "ach", "status": "pending", "metadata": {},
        "originating_account_id": "a1", "live_mode": false,
    })
}

fn payment(amount: &Value) -> Value {
    json!({"payments": {
        "id": "PM1", "amount": amount, "currency": "EUR", "status": "pending_submission",
        "links": {"mandate": "MD1"},
    }})
}

fn reservation(image: &str) -> String {
    format!(
        "<RunInstancesResponse xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\">\
         <requestId>r1</requestId><reservationId>r-1</reservationId><ownerId>1</ownerId>\
         <instancesSet><item><instanceId>i-1</instanceId><imageId>{image}</imageId>\
         <instanceState><code>0</code><name>pending</name></instanceState>\
         <instanceType>t3.micro</instanceType></item></instancesSet></RunInstancesResponse>"
    )
}

fn dynamodb_error(status: u16, code: &str, text: &str) -> Reply {
    let kind = format!("com.amazonaws.dynamodb.v20120810#{code}");
    Reply {
        content_type: "application/x-amz-json-1.0",
        ..Reply::json(status, json!({"__type": kind, "message": text}))
    }
}

fn ec2_error(status: u16, code: &str, text: &str) -> Reply {
    let body = format!(
        "<Response><Errors><Error><Code>{code}</Code><Message>{text}</Message></Error></Errors>\
         <RequestID>r1</RequestID></Response>"
    );
    Reply::xml(status, &body)
}
