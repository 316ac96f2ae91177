//! The schema for editors matches the parser: it has the same keys at each place, and the examples
//! fit it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use braid_daemon::schema::SCHEMA;
use braid_daemon::stack_file;
use regex::Regex;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// Stack files with an unknown key `zzz`, and the object of the schema that is there.
const PLACES: &[(&str, &str)] = &[
    ("", "zzz: 1\nstack: { volume: { home: a, tiers: { a: { dir: x } } } }"),
    ("/definitions/stack", "stack: { zzz: 1 }"),
    ("/definitions/volume", "stack: { volume: { zzz: 1, home: a, tiers: { a: { dir: x } } } }"),
    ("/definitions/log", "stack: { log: { zzz: 1, device: x } }"),
    ("/definitions/view", "stack: { view: { zzz: 1, of: x } }"),
    (
        "/definitions/volume/properties/heat",
        "stack: { volume: { home: a, heat: { zzz: 1 }, tiers: { a: { dir: x } } } }",
    ),
    (
        "/definitions/volume/properties/cache",
        "stack: { volume: { home: a, cache: { zzz: 1 }, tiers: { a: { dir: x } } } }",
    ),
    ("/definitions/tier", "stack: { volume: { home: a, tiers: { a: { zzz: 1, dir: x } } } }"),
    (
        "/definitions/tier/properties/zoned",
        "stack: { volume: { home: a, tiers: { a: { dir: x }, b: { dir: w, zoned: { zzz: 1 } } } } }",
    ),
    (
        "/definitions/tier/properties/memory",
        "stack: { volume: { home: a, tiers: { a: { dir: x }, b: { memory: { zzz: 1 } } } } }",
    ),
    (
        "/definitions/rule",
        "stack: { volume: { home: a, rules: [ { zzz: 1, when: 'sync', tier: a } ], tiers: { a: { dir: x } } } }",
    ),
    (
        "/definitions/hints/anyOf/1",
        "stack: { volume: { home: a, hints: { zzz: 1 }, tiers: { a: { dir: x } } } }",
    ),
    (
        "/definitions/permission",
        "stack: { permissions: { rules: [ { zzz: 1 } ], volume: { home: a, tiers: { a: { dir: x } } } } }",
    ),
    ("/definitions/movers", "stack: { volume: { home: a, movers: { zzz: 1 }, tiers: { a: { dir: x } } } }"),
    (
        "/definitions/mount/properties/kv",
        "stack: { volume: { home: a, tiers: { a: { dir: x } } } }\nmount: { kv: { zzz: 1 } }",
    ),
    ("/definitions/mount", "stack: { volume: { home: a, tiers: { a: { dir: x } } } }\nmount: { zzz: 1 }"),
];

fn schema() -> Value {
    serde_json::from_str(SCHEMA).unwrap()
}

fn keys(schema: &Value, place: &str) -> BTreeSet<String> {
    let object = schema.pointer(place).unwrap_or_else(|| panic!("{place}: the schema has none"));
    object["properties"].as_object().unwrap().keys().cloned().collect()
}

/// The keys that the refusal of an unknown one names.
fn known(text: &str) -> BTreeSet<String> {
    let Err(refusal) = stack_file::parse(text, "s.yaml", Path::new("/")) else { panic!("accepted: {text}") };
    let said = refusal.to_string().to_lowercase().replace(" or ", ", ");
    if said.contains("this takes no keys") {
        return BTreeSet::new();
    }
    let found = ["the keys here are ", "a module is "].into_iter().find_map(|before| said.split_once(before));
    let Some((_, list)) = found else { panic!("{text}: {said}") };
    list.trim_end().split(", ").map(str::to_owned).collect()
}

#[test]
fn it_has_the_keys_that_the_parser_knows() {
    const VOLUME: &str = "volume: { home: a, tiers: { a: { dir: x } } }";
    let schema = schema();
    for (place, text) in PLACES {
        assert_eq!(keys(&schema, place), known(text), "{place}");
    }
    // Each module has its settings, and the module below it.
    let modules = keys(&schema, "/definitions/stack");
    for module in modules.iter().filter(|module| !["volume", "log", "view"].contains(&module.as_str())) {
        let settings = known(&format!("stack: {{ {module}: {{ zzz: 1, {VOLUME} }} }}"));
        let expected = settings.union(&modules).cloned().collect();
        assert_eq!(keys(&schema, &format!("/definitions/{module}")), expected, "{module}");
    }
    let policy = "/definitions/policy/anyOf/1";
    for name in keys(&schema, policy) {
        let with = VOLUME.replacen("home", &format!("policy: {{ {name}: {{ zzz: 1 }} }}, home"), 1);
        let known = known(&format!("stack: {{ {with} }}"));
        assert_eq!(keys(&schema, &format!("{policy}/properties/{name}")), known, "{name}");
    }
}

fn fits(text: &str) -> Result<(), String> {
    let document: Value = serde_saphyr::from_str(text).unwrap();
    let schema = schema();
    check(&schema, &schema, &document, "")
}

/// Whether a value fits a schema: the parts of the standard (draft 7) that this one uses.
/// Others are refused, so that none is forgotten here.
fn check(root: &Value, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    let wrong = |what: &str| Err(format!("{at}: {value} does not fit {what}"));
    if let Some(name) = schema["$ref"].as_str() {
        return check(root, root.pointer(name.trim_start_matches('#')).unwrap(), value, at);
    }
    for (keyword, wanted) in schema.as_object().unwrap() {
        let list = || wanted.as_array().unwrap().iter();
        let count = value.as_object().map_or(0, serde_json::Map::len) as u64;
        let fitting = || list().filter(|schema| check(root, schema, value, at).is_ok()).count();
        let is_fine = match (keyword.as_str(), value) {
            ("$schema" | "title" | "description" | "definitions", _) => true,
            ("type", _) if wanted.is_array() => list().any(|kind| is_of_type(kind, value)),
            ("type", _) => is_of_type(wanted, value),
            ("enum", _) => list().any(|allowed| allowed == value),
            ("anyOf", _) => fitting() > 0,
            ("oneOf", _) => fitting() == 1,
            ("pattern", Value::String(text)) => Regex::new(wanted.as_str().unwrap()).unwrap().is_match(text),
            ("minimum", Value::Number(number)) => number.as_f64() >= wanted.as_f64(),
            ("maximum", Value::Number(number)) => number.as_f64() <= wanted.as_f64(),
            ("exclusiveMinimum", Value::Number(number)) => number.as_f64() > wanted.as_f64(),
            ("minItems", Value::Array(items)) => items.len() as u64 >= wanted.as_u64().unwrap(),
            ("minProperties", Value::Object(_)) => count >= wanted.as_u64().unwrap(),
            ("maxProperties", Value::Object(_)) => count <= wanted.as_u64().unwrap(),
            ("required", Value::Object(map)) => list().all(|key| map.contains_key(key.as_str().unwrap())),
            ("propertyNames", Value::Object(map)) => {
                map.keys().all(|key| check(root, wanted, &Value::from(key.as_str()), at).is_ok())
            }
            ("items", Value::Array(items)) => {
                items.iter().try_for_each(|item| check(root, wanted, item, at))?;
                true
            }
            ("properties", Value::Object(map)) => {
                let known = |key: &String| wanted.get(key);
                map.iter().filter_map(|(key, below)| Some((key, known(key)?, below))).try_for_each(
                    |(key, schema, below)| check(root, schema, below, &format!("{at}.{key}")),
                )?;
                true
            }
            ("additionalProperties", Value::Object(map)) => {
                let is_known = |key: &String| schema["properties"].get(key).is_some();
                let mut others = map.iter().filter(|(key, _)| !is_known(key));
                match wanted {
                    Value::Bool(false) => others.next().is_none(),
                    _ => {
                        others.try_for_each(|(_, below)| check(root, wanted, below, at))?;
                        true
                    }
                }
            }
            // Keywords for another type than the value's.
            (
                "pattern"
                | "minimum"
                | "maximum"
                | "exclusiveMinimum"
                | "minItems"
                | "minProperties"
                | "maxProperties"
                | "required"
                | "propertyNames"
                | "items"
                | "properties"
                | "additionalProperties",
                _,
            ) => true,
            _ => panic!("{keyword}: this test does not know it"),
        };
        if !is_fine {
            return wrong(&format!("{keyword}: {wanted}"));
        }
    }
    Ok(())
}

fn is_of_type(name: &Value, value: &Value) -> bool {
    match name.as_str().unwrap() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("{other}: this test does not know the type"),
    }
}

#[test]
fn what_fits_it_is_taken_and_what_does_not_is_refused() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples");
    let mut count = 0;
    for entry in std::fs::read_dir(examples).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        if path.extension().is_some_and(|kind| kind == "yaml") && text.contains("\nstack:\n") {
            assert_eq!(fits(&text), Ok(()), "{}", path.display());
            count += 1;
        }
    }
    assert!(count >= 5, "{count} examples");
    let with = |volume: &str, more: &str| {
        format!(
            "stack: {{ volume: {{ home: a, {volume} tiers: {{ a: {{ dir: x }}, b: {{ dir: w, {more} }} }} }} }}\n"
        )
    };
    let taken = [
        "stack: { throttle: { by: uid, bandwidth: 9MiB/s, operations: 500/s, weights: { 5: 2.5 }, \
         volume: { home: a, tiers: { a: { dir: x } } } } }\n"
            .to_owned(),
        "stack: { permissions: { rules: [ { uid: [ 5 ], read_only: yes }, { paths: [ a/** ], deny: [ list ] } ], \
         default: allow, volume: { home: a, tiers: { a: { dir: x } } } } }\n"
            .to_owned(),
        "stack: { log: { device: /dev/x, workers: 4 } }\n".to_owned(),
        "stack: { view: { of: /mnt/all } }\n".to_owned(),
        "exec: direct\nstack: { view: { of: /mnt/all } }\n".to_owned(),
        with("", "") + "exec: runtime\n",
        "stack: { deny: { paths: [ a ], view: { of: all/projects } } }\n".to_owned(),
        "stack: { compress: { log: { device: files.log } } }\nmount: { cache: direct }\n"
            .to_owned(),
        with("", "weight: 2.5, reserve: 5%, readonly: on"),
        with("policy: weighted, hints: off, range: 4 MiB,", "reserve: 1GB, require: mountpoint"),
        with(
            "policy: { static: }, hints: { learned: on, profiles: [ rocksdb ] },",
            "zoned: { gc: 10MiB/s, extent: 64K }",
        ),
        with("policy: \"size:small=1MiB\", heat: { budget: 0 },", "faults: [ 'all:EIO' ]"),
        with("movers: { promote: yes, watermark_high: 80%, latency_factor: 3, bandwidth: 5MiB },", ""),
        with("rules: [ { when: 'sync', tier: [ a, b ], pin: true, range: 64KiB, stream: x/y } ],", ""),
        with("epoch: 100ms, jobs: 3, measure: no, monitor: false,", "")
            .replace("stack: { ", "stack: { noop: { ")
            .replace("} } }\n", "} } } }\n"),
    ];
    let refused = [
        with("epoch: 3,", ""),
        with("jobs: 9,", ""),
        with("range: 4XB,", ""),
        with("policy: wieghted,", ""),
        with("policy: { weighted: { }, adaptive: { } },", ""),
        with("", "weight: 0"),
        with("", "require: mounted"),
        with("", "readonly: maybe"),
        with("rules: [ { tier: a } ],", ""),
        with("movers: { watermark_high: 80 },", ""),
        "stack: { noop: { } }\n".to_owned(),
        "stack: { volume: { home: a } }\n".to_owned(),
        "stack: { log: { workers: 4 } }\n".to_owned(),
        "stack: { view: { } }\n".to_owned(),
        "stack: { view: { of: x }, log: { device: x } }\n".to_owned(),
        "stack: { log: { device: x, workers: 65 } }\n".to_owned(),
        "stack: { log: { device: x }, volume: { home: a, tiers: { a: { dir: x } } } }\n".to_owned(),
        "stack: { }\n".to_owned(),
        with("", "") + "mount: { cache: some }\n",
        with("", "") + "exec: aside\n",
        with("", "") + "mount: { threads: 0 }\n",
        "stack: { permissions: { rules: [ { deny: [ erase ] } ], volume: { home: a, tiers: { a: { dir: x } } } } }\n".to_owned(),
        "stack: { throttle: { by: user, each: 1MiB/s, volume: { home: a, tiers: { a: { dir: x } } } } }\n".to_owned(),
        "stack: { consistency: { mode: lax, volume: { home: a, tiers: { a: { dir: x } } } } }\n".to_owned(),
    ];
    for text in taken {
        assert_eq!(fits(&text), Ok(()), "{text}");
        assert!(
            stack_file::parse(&text, "s.yaml", Path::new("/")).is_ok(),
            "{text}: {:?}",
            stack_file::parse(&text, "s.yaml", Path::new("/")).err().map(|refusal| refusal.to_string())
        );
    }
    for text in refused {
        assert!(fits(&text).is_err(), "{text}");
        assert!(stack_file::parse(&text, "s.yaml", Path::new("/")).is_err(), "{text}");
    }
}
