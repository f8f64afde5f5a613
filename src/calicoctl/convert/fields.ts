// Reads the fields of a v1 resource. Each must have its type, and the resource may not have other fields.
import { ConvertFault } from "./fault.ts";

export class Fields {
  readonly #values: Readonly<Record<string, unknown>>;
  readonly #field: string;
  readonly #read = new Set<string>();

  constructor(value: unknown, field: string) {
    if (value !== undefined && value !== null && (typeof value !== "object" || Array.isArray(value)))
      throw new ConvertFault(field, "want a group of fields");
    this.#values = (value ?? {}) as Readonly<Record<string, unknown>>;
    this.#field = field;
  }

  static list(value: unknown, field: string): readonly unknown[] {
    if (value === undefined || value === null) return [];
    if (!Array.isArray(value)) throw new ConvertFault(field, "want a list");
    return value;
  }

  name(key: string): string {
    return this.#field === "" ? key : `${this.#field}.${key}`;
  }

  any(key: string): unknown {
    this.#read.add(key);
    return this.#values[key] ?? undefined;
  }

  text(key: string): string | undefined {
    const value = this.any(key);
    if (value === undefined || value === "") return undefined;
    if (typeof value === "object") throw new ConvertFault(this.name(key), "want text");
    return String(value);
  }

  required(key: string): string {
    const value = this.text(key);
    if (value === undefined) throw new ConvertFault(this.name(key), "is missing");
    return value;
  }

  texts(key: string): string[] {
    return Fields.list(this.any(key), this.name(key)).map((item, i) => {
      if (typeof item === "object") throw new ConvertFault(`${this.name(key)}[${i}]`, "want text");
      return String(item);
    });
  }

  isTrue(key: string): boolean {
    const value = this.any(key) ?? false;
    if (typeof value !== "boolean") throw new ConvertFault(this.name(key), "want true or false");
    return value;
  }

  map(key: string): Record<string, string> | undefined {
    const entries = Object.entries((this.any(key) ?? {}) as object).map(([k, v]) => {
      if (typeof v === "object") throw new ConvertFault(`${this.name(key)}.${k}`, "want text");
      return [k, String(v)] as const;
    });
    return entries.length === 0 ? undefined : Object.fromEntries(entries);
  }

  child(key: string): Fields {
    return new Fields(this.any(key), this.name(key));
  }

  /** @throws ConvertFault if the resource has a field that was not read */
  end(): void {
    const unknown = Object.keys(this.#values).find((key) => !this.#read.has(key));
    if (unknown !== undefined) throw new ConvertFault(this.name(unknown), "unknown field");
  }
}
