// JSON schemas as far as a form goes: what kind of field something is, and how it begins.

// {kind, schema}: "text" "number" "boolean" "choice" "list" "group", or "json" for all else.
export function fieldOf(schema, root, depth = 0) {
  const found = resolved(schema, root);
  if (!found || depth > 8 || found.allOf || found.if || found.not) return { kind: "json", schema: found ?? {} };
  const options = found.anyOf ?? found.oneOf;
  if (options) {
    const real = options.map((one) => resolved(one, root)).filter((one) => one && one.type !== "null");
    if (real.length !== 1) return { kind: "json", schema: found };
    const { anyOf, oneOf, ...about } = found;
    return fieldOf({ ...real[0], ...about }, root, depth + 1);
  }
  if (found.enum || found.const !== undefined) return { kind: "choice", schema: found };
  const types = [found.type].flat().filter((one) => one && one !== "null");
  const type = types.length === 1 ? types[0] : null;
  if (type === "string") return { kind: "text", schema: found };
  if (type === "integer" || type === "number") return { kind: "number", schema: found };
  if (type === "boolean") return { kind: "boolean", schema: found };
  if (type === "array" && found.items && !Array.isArray(found.items)) return { kind: "list", schema: found };
  const hasFields = found.properties && Object.keys(found.properties).length > 0;
  if ((type === "object" || (!types.length && found.properties)) && hasFields) return { kind: "group", schema: found };
  return { kind: "json", schema: found };
}

function resolved(schema, root) {
  let found = schema;
  for (let steps = 0; found && typeof found === "object" && found.$ref; steps++) {
    if (steps > 8 || !found.$ref.startsWith("#/")) return null;
    const { $ref, ...about } = found;
    const names = $ref.slice(2).split("/").map((name) => decodeURIComponent(name).replaceAll("~1", "/").replaceAll("~0", "~"));
    const target = names.reduce((at, name) => at?.[name], root);
    found = target && { ...target, ...about };
  }
  return found && typeof found === "object" ? found : null;
}

// What the form shows first: defaults, and what must be there.
export function firstValue(schema, root, isRequired = true, depth = 0) {
  const { kind, schema: found } = fieldOf(schema, root);
  if (found.default !== undefined) return structuredClone(found.default);
  if (found.const !== undefined && isRequired) return found.const;
  if (kind === "group" && depth < 8) {
    const inside = {};
    for (const [name, field] of Object.entries(found.properties)) {
      const value = firstValue(field, root, (found.required ?? []).includes(name), depth + 1);
      if (value !== undefined) inside[name] = value;
    }
    return isRequired || Object.keys(inside).length ? inside : undefined;
  }
  if (kind === "boolean" && isRequired) return false;
  if (kind === "list" && isRequired) return [];
  return undefined;
}

// "num_steps" is "Num steps".
export const titleOf = (name, schema) => schema?.title ?? name.replaceAll("_", " ").replace(/^./, (letter) => letter.toUpperCase());

export function limits(schema) {
  const { minimum, maximum, exclusiveMinimum, exclusiveMaximum, minLength, maxLength, minItems, maxItems, format, pattern } = schema;
  const range = (low, high, unit = "") =>
    low !== undefined && high !== undefined ? `${low} to ${high}${unit}` : low !== undefined ? `at least ${low}${unit}` : high !== undefined ? `at most ${high}${unit}` : "";
  return [
    range(minimum, maximum),
    exclusiveMinimum !== undefined && `over ${exclusiveMinimum}`,
    exclusiveMaximum !== undefined && `below ${exclusiveMaximum}`,
    range(minLength > 1 ? minLength : undefined, maxLength, " characters"),
    range(minItems, maxItems, " of them"),
    format,
    pattern && `like ${pattern}`,
  ].filter(Boolean).join(", ");
}
