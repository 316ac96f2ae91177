//! A JSON schema of stack files, for editors.

use braid_stack::Registry;
use serde_json::{Map, Value, json};

/// The schema of the built-in modules.
pub const SCHEMA: &str = include_str!("../stack.schema.json");

/// The schema with the modules that this user's repositories have; any settings of those
/// are right.
///
/// # Errors
/// If it is none: not with a program that was built as it should be.
pub fn with_libraries() -> Result<String, serde_json::Error> {
    with(&Registry::default().names())
}

fn with(names: &[String]) -> Result<String, serde_json::Error> {
    if names.is_empty() {
        return Ok(SCHEMA.to_owned());
    }
    let mut schema: Value = serde_json::from_str(SCHEMA)?;
    let definitions = schema["definitions"].as_object_mut();
    let definitions = definitions.into_iter().flat_map(Map::values_mut);
    // A stack, and each module, have a module below them.
    for node in definitions.filter(|node| node["properties"].get("volume").is_some()) {
        for name in names {
            node["properties"][name] = json!({ "$ref": format!("#/definitions/{name}") });
            if let Some(one_of) = node.get_mut("oneOf").and_then(Value::as_array_mut) {
                one_of.push(json!({ "required": [name] }));
            }
        }
    }
    let mut of_library = schema["definitions"]["noop"].clone();
    of_library["description"] = "Comes in a library.".into();
    of_library["additionalProperties"] = true.into();
    for name in names {
        schema["definitions"][name] = of_library.clone();
    }
    serde_json::to_string_pretty(&schema).map(|text| text + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_of_libraries_may_be_anywhere_with_any_settings() {
        assert_eq!(with(&[]).unwrap(), SCHEMA);
        let schema: Value = serde_json::from_str(&with(&["keep".into()]).unwrap()).unwrap();
        for node in ["stack", "deny", "keep"] {
            let properties = &schema["definitions"][node]["properties"];
            assert_eq!(properties["keep"]["$ref"], "#/definitions/keep", "{node}");
            assert_eq!(properties["volume"]["$ref"], "#/definitions/volume", "{node}");
        }
        assert_eq!(schema["definitions"]["keep"]["additionalProperties"], true);
        let below = schema["definitions"]["deny"]["oneOf"].as_array().unwrap();
        assert!(below.contains(&json!({ "required": ["keep"] })));
    }
}
