// Reads JSON objects that nobody has validated (stored resources, Kubernetes objects) field by field. A field that is
// absent or null is undefined; a field of the wrong type is rejected with its path.
import { isJsonObject, type Json, type JsonObject } from "./lossless-json.ts";

/** A field has the wrong JSON type, such as a number where a list belongs. */
export class WrongShape extends Error {
  override readonly name: string = "WrongShape";
  constructor(
    readonly path: string,
    readonly wanted: string,
  ) {
    super(`${path === "" ? "value" : path}: want ${wanted}`);
  }
}

/** A field has the right JSON type, but its value is not one that the field can have. */
export class WrongValue extends WrongShape {
  override readonly name = "WrongValue";
}

export class JsonReader {
  readonly #json: JsonObject;
  readonly #path: string;

  /** @param path where the object stands, for messages */
  constructor(json: unknown, path = "") {
    if (!isJsonObject(json as Json | undefined)) throw new WrongShape(path, "an object");
    this.#json = json as JsonObject;
    this.#path = path;
  }

  /** The field as it is. */
  raw(name: string): Json | undefined {
    return (Object.hasOwn(this.#json, name) ? this.#json[name] : undefined) ?? undefined;
  }

  get names(): readonly string[] {
    return Object.keys(this.#json).filter((name) => this.raw(name) !== undefined);
  }

  text(name: string): string | undefined {
    const value = this.raw(name);
    if (value !== undefined && typeof value !== "string") this.#wrongType(name, "text");
    return value;
  }

  /** Undefined also for the empty string. */
  filled(name: string): string | undefined {
    const value = this.text(name);
    return value === "" ? undefined : value;
  }

  number(name: string): number | undefined {
    const value = this.raw(name);
    if (value !== undefined && typeof value !== "number") this.#wrongType(name, "a number");
    return value;
  }

  textOrNumber(name: string): string | number | undefined {
    const value = this.raw(name);
    if (value !== undefined && typeof value !== "number" && typeof value !== "string")
      this.#wrongType(name, "text or a number");
    return value;
  }

  whole(name: string): number | undefined {
    const value = this.raw(name);
    if (value !== undefined && !Number.isSafeInteger(value)) this.#wrongType(name, "a whole number");
    return value as number | undefined;
  }

  flag(name: string): boolean | undefined {
    const value = this.raw(name);
    if (value !== undefined && typeof value !== "boolean") this.#wrongType(name, "true or false");
    return value;
  }

  object(name: string): JsonReader | undefined {
    const value = this.raw(name);
    return value === undefined ? undefined : new JsonReader(value, this.at(name));
  }

  /** An absent list is empty. */
  list(name: string): readonly Json[] {
    const value = this.raw(name) ?? [];
    if (!Array.isArray(value)) this.#wrongType(name, "a list");
    return value as readonly Json[];
  }

  objects(name: string): readonly JsonReader[] {
    return this.list(name).map((item, i) => new JsonReader(item, `${this.at(name)}[${i}]`));
  }

  texts(name: string): readonly string[] {
    return this.list(name).map((item, i) => {
      if (typeof item !== "string") throw new WrongShape(`${this.at(name)}[${i}]`, "text");
      return item;
    });
  }

  /** A map from text to text. */
  map(name: string): Readonly<Record<string, string>> | undefined {
    const value = this.raw(name);
    if (value === undefined) return undefined;
    if (!isJsonObject(value)) this.#wrongType(name, "an object");
    for (const [key, inner] of Object.entries(value))
      if (typeof inner !== "string") throw new WrongShape(`${this.at(name)}.${key}`, "text");
    return value as Readonly<Record<string, string>>;
  }

  at(name: string): string {
    return this.#path === "" ? name : `${this.#path}.${name}`;
  }

  /** Rejects the value of a field. */
  fail(name: string, wanted: string): never {
    throw new WrongValue(this.at(name), wanted);
  }

  #wrongType(name: string, wanted: string): never {
    throw new WrongShape(this.at(name), wanted);
  }
}
