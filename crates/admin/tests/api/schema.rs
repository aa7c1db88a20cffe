//! As much of JSON Schema as the document uses. Stricter in one thing: a property that the
//! document does not have is an error.

use serde_json::Value;

pub(crate) fn document() -> Value {
    serde_json::from_str(onlyonce_admin::OPENAPI).unwrap()
}

/// What is wrong with a value, and where.
pub(crate) fn errors(document: &Value, schema: &Value, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    check(document, schema, value, "", &mut found);
    found
}

fn check(document: &Value, schema: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
    if let Some(name) = schema["$ref"].as_str() {
        let target = document.pointer(name.trim_start_matches('#'));
        return check(document, target.expect(name), value, at, found);
    }
    if let Some(choices) = schema["anyOf"].as_array() {
        let fits = |choice| errors(document, choice, value).is_empty();
        if !choices.iter().any(fits) {
            found.push(format!("{at}: {value} fits no choice"));
        }
        return;
    }
    if let Some(kinds) = kinds(&schema["type"])
        && !kinds.iter().any(|kind| is(kind, value))
    {
        found.push(format!("{at}: {value} is not {kinds:?}"));
        return;
    }
    if let Some(names) = schema["enum"].as_array()
        && !names.contains(value)
    {
        found.push(format!("{at}: {value} is none of {names:?}"));
    }
    match value {
        Value::Object(fields) => object(document, schema, fields, at, found),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                let at = format!("{at}/{index}");
                check(document, &schema["items"], item, &at, found);
            }
        }
        Value::Number(number) => {
            let below = schema["minimum"].as_i64().zip(number.as_i64());
            if below.is_some_and(|(least, number)| number < least) {
                found.push(format!("{at}: {number} is too small"));
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

fn object(
    document: &Value,
    schema: &Value,
    fields: &serde_json::Map<String, Value>,
    at: &str,
    found: &mut Vec<String>,
) {
    for name in schema["required"].as_array().into_iter().flatten() {
        if !fields.contains_key(name.as_str().unwrap()) {
            found.push(format!("{at}: {name} is missing"));
        }
    }
    let any = schema["type"] == "object" && schema["properties"].is_null();
    for (name, value) in fields {
        let at = format!("{at}/{name}");
        let known = &schema["properties"][name];
        let others = &schema["additionalProperties"];
        if !known.is_null() {
            check(document, known, value, &at, found);
        } else if others.is_object() {
            check(document, others, value, &at, found);
        } else if !any {
            found.push(format!("{at}: not in the document"));
        }
    }
}

fn kinds(kind: &Value) -> Option<Vec<&str>> {
    match kind {
        Value::String(kind) => Some(vec![kind]),
        Value::Array(kinds) => Some(kinds.iter().filter_map(Value::as_str).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    }
}

fn is(kind: &str, value: &Value) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("{other} is no type"),
    }
}
