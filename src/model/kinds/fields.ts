// Defines the field types from which the schemas of kinds are built: zod schemas, plus properties that zod does not have.
//
// The stored form, which other programs read, depends on how absent and empty values are stored. Each field defines this:
//   field(s)       absent, null and empty ("", 0, false, [], {}) are the same: not stored
//   pointer(s)     absent and null are not stored, empty is
//   always(s, v)   absent is stored as v
//   preset(s, v)   absent, null and empty are stored as the default v
//   initial(s, v)  absent and null are stored as the default v, empty as it is
//   s itself       required
// In text fields, numbers and booleans are converted to text, because YAML does not require quotes.
import * as z from "zod/mini";
import type { IpVersion } from "../../lib/ip/ip.ts";
import { formatDuration, parseDuration } from "../validation/duration.ts";
import * as formats from "../validation/formats.ts";
import { normalizePort, normalizeProtocol, parseAsNumber } from "../validation/numbers.ts";
import type { PortValue, ProtocolValue } from "../validation/numbers.ts";
import { parseSelector } from "../selector/selector.ts";

export interface Extra {
  /** Empty values are stored. */
  readonly pointer?: boolean;
  /** The maximum number of items or characters. It is checked only on writes: older versions stored more. */
  readonly limit?: number;
  /** Converts a value to the stored form, before validation. Returns values unchanged that it cannot convert. */
  readonly decode?: (value: unknown) => unknown;
  /** Describes valid values, for error messages. */
  readonly wanted?: string;
  readonly description?: string;
  /** Keywords for the OpenAPI schema that zod does not derive. */
  readonly openapi?: Readonly<Record<string, unknown>>;
}
export const extras = z.registry<Extra>();

type Schema = z.ZodMiniType;

/** Sets additional properties of a schema. Later calls take precedence. */
export function extra<S extends Schema>(schema: S, more: Extra): S {
  extras.add(schema, { ...extras.get(schema), ...more });
  return schema;
}

export const field = <S extends Schema>(schema: S) => z.exactOptional(schema);
export const pointer = <S extends Schema>(schema: S) => extra(z.exactOptional(schema), { pointer: true });
export const preset = <S extends Schema>(schema: S, value: z.output<S>) => z._default(schema, value as never);
export const initial = <S extends Schema>(schema: S, value: z.output<S>) =>
  extra(z._default(schema, value as never), { pointer: true });
/**
 * The default is set on writes through calico-ts, but not by an API server, because it is omitted from the CRD. A default
 * in the settings of one node would hide the settings for all nodes.
 */
export const unserved = <S extends Schema>(schema: S) => extra(schema, { openapi: { default: undefined } });
export const always = <S extends Schema>(schema: S, value: z.output<S>) =>
  extra(z._default(schema, value as never), { pointer: true, openapi: { default: undefined } });

export const text = () => z.string();
export const flag = () => z.boolean();
export const number = () => z.number();
/** Any value, stored unchanged. */
export const unchecked = () => z.unknown();

export function integer(min = -(2 ** 31), max = 2 ** 31 - 1, wanted = `want a whole number from ${min} to ${max}`) {
  return extra(z.int().check(z.minimum(min), z.maximum(max)), { wanted });
}
export const portNumber = () => integer(0, 65535, "want a port, 0 to 65535");
export const uint32 = () => integer(0, 0xffffffff);
/** Calico has 64 bits; calico-ts accepts only integers that a double represents exactly. */
export const int64 = () => integer(Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER);

export const choice = <const V extends readonly string[]>(...values: V) =>
  extra(z.enum(values), {
    wanted: `want ${values.slice(0, -1).join(", ")}${values.length > 1 ? " or " : ""}${values.at(-1)}`,
  });
/** One of the words in any letter case, stored as written. */
export const anyCase = <const V extends readonly string[]>(...values: V) => {
  const known = new Set(values.map((value) => value.toLowerCase()));
  return matching((value) => known.has(value.toLowerCase()), `want one of ${values.join(", ")}`, {
    pattern: `^(?i)(${values.join("|")})?$`,
  });
};

export const list = <S extends Schema>(item: S, limit?: number) =>
  limit === undefined ? z.array(item) : extra(z.array(item), { limit });
/** A list whose items may not repeat. */
export const distinct = <S extends Schema>(item: S, limit?: number) => {
  const schema = z
    .array(item)
    .check(z.refine((items) => new Set(items).size === items.length, "contains an item twice"));
  return limit === undefined ? schema : extra(schema, { limit });
};
export const map = () => z.record(z.string(), z.string());
export const numberMap = () => z.record(z.string(), bigInteger());
export const nullable = <S extends Schema>(schema: S) => z.nullable(schema);
export const object = <Shape extends z.core.$ZodLooseShape>(shape: Shape) => z.object(shape);

/** Text that passes a test. */
export function matching(test: (value: string) => boolean, wanted: string, openapi?: Record<string, unknown>) {
  const schema = z.string().check(z.refine(test, wanted));
  return extra(schema, openapi === undefined ? { wanted } : { wanted, openapi });
}
export const limited = (limit: number) => extra(z.string(), { limit });

export const subdomain = () =>
  matching(formats.isSubdomain, "want a lower-case DNS name of at most 253 characters, such as node-1.example");
export const address = (version?: IpVersion) =>
  matching(
    (value) => formats.isAddress(value, version),
    `want an ${family(version)} address, such as ${version === 6 ? "fd00::1" : "10.0.0.1"}`,
  );
/** A CIDR or address; host bits may be set. */
export const network = (version?: IpVersion) =>
  matching(
    (value) => formats.isNetwork(value, version),
    `want an ${family(version)} CIDR or address, such as ${version === 6 ? "fd00::5/64" : "10.0.0.5/24"}`,
  );
/** A CIDR or address without host bits. */
export const maskedNetwork = (version?: IpVersion) =>
  matching(
    (value) => formats.isMaskedNetwork(value, version),
    `want an ${family(version)} CIDR without host bits, such as ${version === 6 ? "fd00::/64" : "10.0.0.0/24"}`,
  );
export const interfaceName = () =>
  matching(formats.isInterface, "want an interface name of at most 15 characters, or *");
export const mac = () => matching(formats.isMac, "want a MAC address, such as 66:a1:b2:c3:d4:e5");
export const portName = () =>
  matching(formats.isPortName, "want a port name: at most 15 of a-z, 0-9 and -, with a letter");
export const labels = () =>
  z.record(
    matching(formats.isQualifiedName, "want a label key such as app or example.org/app"),
    matching(formats.isLabelValue, "want a label value: at most 63 of letters, digits, -, _ and ."),
  );

/** A selector of Calico's language; empty selects everything. */
export const selector = (limit?: number) => {
  const schema = z.string().check((check) => {
    try {
      parseSelector(check.value);
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      check.issues.push({ code: "custom", input: check.value, message: `is not a selector: ${reason}` });
    }
  });
  return limit === undefined ? schema : extra(schema, { limit });
};
/** A regular expression. For the expressions that are common here, those of Go and JavaScript are equal. */
export const regex = () =>
  matching((value) => {
    try {
      new RegExp(value);
      return true;
    } catch {
      return false;
    }
  }, "want a regular expression");

const DURATION = "want a duration such as 90s or 1m30s";
export const duration = () =>
  extra(
    matching((value) => parseDuration(value) !== undefined, DURATION),
    {
      decode: (value) => {
        const ns = typeof value === "string" ? parseDuration(value) : undefined;
        return ns === undefined ? value : formatDuration(ns);
      },
    },
  );

/** Whether the schema of a field, optional or not, is a duration. */
export const isDuration = (schema: Schema | undefined): boolean =>
  schema !== undefined &&
  (extras.get(schema)?.wanted === DURATION ||
    ("innerType" in schema._zod.def && isDuration(schema._zod.def["innerType"] as Schema)));

export const asNumber = () =>
  extra(z.int().check(z.minimum(0), z.maximum(0xffffffff)), {
    decode: (value) => parseAsNumber(value) ?? value,
    wanted: "want an AS number: 0 to 4294967295, or dotted such as 1.10",
    openapi: { type: "integer", format: "int64" },
  });

const INT_OR_STRING = {
  anyOf: [{ type: "integer" }, { type: "string" }],
  pattern: "^.*",
  "x-kubernetes-int-or-string": true,
};

const WANTED_PORT = "want a port: 1 to 65535, a range such as 1:10, or a name";
export const port = () =>
  extra(
    z.custom<PortValue>((value) => normalizePort(value) !== undefined, { error: WANTED_PORT }),
    {
      decode: (value) => normalizePort(value) ?? value,
      wanted: WANTED_PORT,
      openapi: INT_OR_STRING,
    },
  );
export const protocol = () =>
  extra(
    z.custom<ProtocolValue>((value) => normalizeProtocol(value) !== undefined),
    {
      decode: (value) => normalizeProtocol(value) ?? value,
      wanted: "want TCP, UDP, ICMP, ICMPv6, SCTP, UDPLite or a number from 1 to 255",
      openapi: INT_OR_STRING,
    },
  );

/** A number or text, as in Kubernetes for ports. */
export const intOrString = () =>
  extra(
    z.custom<number | string>((value) => typeof value === "string" || Number.isInteger(value)),
    { wanted: "want a whole number or text", openapi: INT_OR_STRING },
  );
/** A whole number of any size, up to 64 bits. */
export const bigInteger = () =>
  extra(
    z.custom<number | bigint>((value) => typeof value === "bigint" || Number.isInteger(value)),
    { wanted: "want a whole number", openapi: { type: "integer", format: "int64" } },
  );
export const dscp = () =>
  extra(
    z.custom<number | string>((value) => isDscp(value)),
    { wanted: "want a DSCP: 0 to 63, or a name such as EF, AF21, CS3", openapi: INT_OR_STRING },
  );

export const condition = () =>
  object({
    type: text(),
    status: choice("True", "False", "Unknown"),
    reason: field(text()),
    message: field(text()),
    lastTransitionTime: field(text()),
    observedGeneration: field(int64()),
  });
export const secretKeyRef = () => object({ name: field(text()), key: always(text(), ""), optional: pointer(flag()) });

function isDscp(value: unknown): boolean {
  if (typeof value === "number") return Number.isInteger(value) && value >= 0 && value <= 63;
  if (typeof value !== "string") return false;
  return /^\d{1,2}$/.test(value) ? Number(value) <= 63 : /^(DF|EF|AF[1-4][1-3]|CS[0-6])$/i.test(value);
}

function family(version: IpVersion | undefined): string {
  return version === undefined ? "IP" : `IPv${version}`;
}
