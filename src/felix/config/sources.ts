// Reads settings from the environment and from the configuration file.

export type Environment = Readonly<Record<string, string | undefined>>;
const PREFIX = "felix_";

/** Returns all variables that start with FELIX_, in any letter case. The names in the result are in lower case. */
export function environmentLayer(env: Environment): Record<string, string> {
  const layer: Record<string, string> = {};
  for (const [variable, value] of Object.entries(env)) {
    const name = variable.toLowerCase();
    if (name.startsWith(PREFIX) && name.length > PREFIX.length && value !== undefined)
      layer[name.slice(PREFIX.length)] = value;
  }
  return layer;
}

/** Returns true if the setting's value must not appear in logs. */
function isSecret(name: string): boolean {
  const lower = name.toLowerCase();
  return (
    /password|passwd|token|secret|credential/.test(lower) || (/(key|cert)$/.test(lower) && !/(file|path)$/.test(lower))
  );
}

export const redact = (name: string, value: string): string => (isSecret(name) && value !== "" ? "<redacted>" : value);

/** Redacts an invalid line, which may be a mistyped secret. */
function redactLine(line: string): string {
  const [name = "", ...rest] = line.split(/\s+/);
  return rest.length === 0 ? line : `${name} ${redact(name, rest.join(" "))}`;
}

export class ConfigFileError extends Error {
  override readonly name = "ConfigFileError";
}

/**
 * Parses `name = value` lines. Sections are ignored. If a name is repeated, the last value is used.
 * @param problems receives a message for each repeated name
 */
export function parseConfigFile(text: string, problems: string[] = []): Record<string, string> {
  const layer: Record<string, string> = {};
  for (const [i, line] of text.split(/\r?\n/).entries()) {
    const content = line.trim();
    if (content === "" || content.startsWith("#") || content.startsWith(";")) continue;
    if (/^\[.*\]$/.test(content)) continue;
    const match = /^([^=:\s][^=:]*?)\s*[=:]\s*(.*)$/.exec(content);
    if (match?.[1] === undefined)
      throw new ConfigFileError(`line ${i + 1}: expected name = value, got ${redactLine(content)}`);
    const name = match[1];
    const value = unquote(match[2] ?? "");
    const existing = Object.keys(layer).find((other) => other.toLowerCase() === name.toLowerCase());
    if (existing !== undefined) {
      problems.push(`line ${i + 1}: ${name} is set twice; the later value is used`);
      delete layer[existing];
    }
    layer[name] = value;
  }
  return layer;
}

function unquote(value: string): string {
  const match = /^(["'`])(.*)\1$/.exec(value);
  return match?.[2] ?? value.replace(/\s+[#;].*$/, "");
}
