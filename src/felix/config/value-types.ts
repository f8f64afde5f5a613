// The types settings have: how their text is read.
import { type Cidr, type IpAddress, type IpVersion, ipVersion, tryParseAddress, tryParseCidr } from "../../lib/ip.ts";
import { parseDscp } from "../../model/index.ts";
import { BadValue, type Surroundings, type ValueType } from "./parameter.ts";

function type<T>(
  name: string,
  zero: T,
  wanted: string,
  read: (text: string, surroundings: Surroundings) => T | undefined,
): ValueType<T> {
  return {
    name,
    zero,
    parse: (text, surroundings) => {
      const value = read(text, surroundings);
      if (value === undefined) throw new BadValue(text, wanted);
      return value;
    },
  };
}

const items = (text: string): string[] =>
  text
    .split(",")
    .map((item) => item.trim())
    .filter((item) => item !== "");

/** Every item read, or undefined when one is bad. */
function each<T>(text: string, read: (item: string) => T | undefined): T[] | undefined {
  const values: T[] = [];
  for (const item of items(text)) {
    const value = read(item);
    if (value === undefined) return undefined;
    values.push(value);
  }
  return values;
}

// --- words and numbers -------------------------------------------------------------------------------------------
const TRUE = new Set(["true", "1", "yes", "y", "t"]);
const FALSE = new Set(["false", "0", "no", "n", "f"]);
const readFlag = (text: string): boolean | undefined =>
  TRUE.has(text.toLowerCase()) ? true : FALSE.has(text.toLowerCase()) ? false : undefined;

export const flag = type("boolean", false, "true or false", readFlag);
export const optionalFlag = type<boolean | "auto">("boolean or unset", "auto", "true or false", readFlag);

export const text = type<string>("text", "", "text", (given) => given);
export const path = type<string>("path", "", "a path", (given) => given);
export const existingFile = type<string>("file", "", "a file that exists", (given, { exists }) =>
  exists(given) ? given : undefined,
);
export const executable = type<string>("program", "", "a program beside ours or on the search path", (given, s) =>
  s.findExecutable(given),
);

export function integer(min = Number.MIN_SAFE_INTEGER, max = Number.MAX_SAFE_INTEGER): ValueType<number> {
  const bounds =
    min === Number.MIN_SAFE_INTEGER ? "" : max === Number.MAX_SAFE_INTEGER ? ` ≥ ${min}` : ` ${min}–${max}`;
  return type(`integer${bounds}`, 0, `a whole number${bounds}`, (given) => {
    const value = readInteger(given);
    return value !== undefined && value >= min && value <= max ? value : undefined;
  });
}

/** As Go writes them: `0x10`, `0b10`, `0o10` and `010` too, and `_` between digits. */
function readInteger(given: string): number | undefined {
  const [, sign, text = ""] =
    /^([+-]?)(0x(?:_?[\da-f])+|0b(?:_?[01])+|0o?(?:_?[0-7])+|0|[1-9](?:_?\d)*)$/i.exec(given) ?? [];
  if (text === "") return undefined;
  const digits = text.replaceAll("_", "").toLowerCase();
  const value = Number(/^0\d/.test(digits) ? `0o${digits.slice(1)}` : digits);
  return Number.isSafeInteger(value) ? (sign === "-" && value !== 0 ? -value : value) : undefined;
}
const readNumber = (given: string): number | undefined =>
  /^[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?$/i.test(given) ? Number(given) : undefined;
export const seconds = type("seconds", 0, "a number of seconds", readNumber);
export const milliseconds = type("milliseconds", 0, "a number of milliseconds", readNumber);

/** Any case in, the spelling of the table out. */
export function choice<const V extends readonly string[]>(...values: V): ValueType<V[number] | ""> {
  const byText = new Map<string, V[number]>(values.map((value) => [value.toLowerCase(), value]));
  return type<V[number] | "">(values.join(", "), byText.get("none") ?? "", `one of ${values.join(", ")}`, (given) =>
    byText.get(given.toLowerCase()),
  );
}
export const logLevel = choice("TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL");

export const regexp = type<RegExp | undefined>("regular expression", undefined, "a regular expression", (given) => {
  try {
    return new RegExp(given);
  } catch {
    return undefined;
  }
});

const DURATION = /(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)/gy;
const UNIT_MS: Readonly<Record<string, number>> = { ns: 1e-6, us: 1e-3, µs: 1e-3, ms: 1, s: 1e3, m: 6e4, h: 3.6e6 };

/** Milliseconds of `1m30s`. */
function readDuration(given: string): number | undefined {
  if (given === "0") return 0;
  if (given === "" || given.replace(DURATION, "") !== "") return undefined;
  let total = 0;
  for (const [, amount = "", unit = ""] of given.matchAll(DURATION)) total += Number(amount) * (UNIT_MS[unit] ?? 0);
  return total;
}

/** `key=value,…`: keys of letters, digits and `_`; blanks of a value are kept; empty items pass. */
function readPairs<T>(given: string, read: (value: string) => T | undefined): ReadonlyMap<string, T> | undefined {
  const pairs = new Map<string, T>();
  for (const item of given.split(",")) {
    if (item.trim() === "") continue;
    const match = /^\s*(\w+)=(.*)$/s.exec(item);
    const value = match?.[2] === undefined ? undefined : read(match[2]);
    if (match?.[1] === undefined || value === undefined) return undefined;
    pairs.set(match[1], value);
  }
  return pairs;
}
export const keyValues = type<ReadonlyMap<string, string>>(
  "key=value list",
  new Map(),
  "a list such as a=b,c=d",
  (given) => readPairs(given, (value) => value),
);
/** Milliseconds by name. */
export const durationMap = type<ReadonlyMap<string, number>>(
  "name=duration list",
  new Map(),
  "a list such as CalculationGraph=30s",
  (given) => readPairs(given, (value) => readDuration(value.trim())),
);
export interface Rate {
  readonly count: number;
  readonly unit: "second" | "minute" | "hour" | "day";
}
export const rate = type<Rate | undefined>("rate", undefined, "a rate such as 10/second, 1 to 9999", (given) => {
  const match = /^([1-9]\d{0,3})\/(second|minute|hour|day)$/.exec(given);
  return match === null ? undefined : { count: Number(match[1]), unit: match[2] as Rate["unit"] };
});

// --- hosts and interfaces ----------------------------------------------------------------------------------------
const HOSTNAME = /^[A-Za-z0-9_.-]+$/;
export const hostname = type<string>("host name", "", "a host name", (given) =>
  HOSTNAME.test(given) ? given : undefined,
);
export const hostAddress = type<string>("host address", "", "a host name or address", (given) =>
  HOSTNAME.test(given) || tryParseAddress(given) !== undefined ? given : undefined,
);
export const hostAndPort = type<string>(
  "host:port",
  "",
  "an address such as 10.0.0.1:2379 or [fd00::1]:2379",
  (given) => (/^([A-Za-z0-9_.-]+|\[[0-9a-fA-F:.]+\]):\d{1,5}$/.test(given) ? given : undefined),
);
/** All of one scheme, each ending in `/`. */
export const urls = type<readonly string[]>("URL list", [], "URLs of one scheme without path", (given) => {
  const list = each(given, (item) => {
    const url = URL.canParse(item) ? new URL(item) : undefined;
    if (url === undefined || !/^https?:$/.test(url.protocol) || url.host === "") return undefined;
    if (url.pathname !== "/" || url.username !== "" || url.search !== "" || url.hash !== "") return undefined;
    return `${url.protocol}//${item.replace(/^https?:\/\//, "").replace(/\/$/, "")}/`;
  });
  return list !== undefined && list.length > 0 && new Set(list.map((url) => url.split(":")[0])).size === 1
    ? list
    : undefined;
});
const INTERFACE = /^[A-Za-z0-9_.-]{1,15}$/;
export const interfaceName = type<string>("interface", "", "an interface name of at most 15 characters", (given) =>
  /^[A-Za-z0-9_.+-]{1,15}$/.test(given) ? given : undefined,
);
export const interfacePrefixes = type<readonly string[]>(
  "interface prefixes",
  [],
  "interface prefixes such as cali,tap",
  (given) => {
    const list = each(given, (item) => (INTERFACE.test(item) ? item : undefined));
    return list === undefined || list.length === 0 ? undefined : list;
  },
);
/** `/…/` is a regular expression, anything else a whole name. */
export const interfacePatterns = type<readonly RegExp[]>(
  "interface list, /regular expressions/ too",
  [],
  "interfaces such as eth0,/^veth/",
  (given) =>
    each(given, (item) => {
      const pattern = /^\/(.+)\/$/.exec(item)?.[1];
      try {
        if (pattern !== undefined) return new RegExp(pattern);
      } catch {
        return undefined;
      }
      if (!/^[A-Za-z0-9_.+-]{1,15}$/.test(item)) return undefined;
      // As iptables has it, a + at the end stands for any rest.
      const name = RegExp.escape(item.replace(/\+$/, ""));
      return new RegExp(item.endsWith("+") ? `^${name}` : `^${name}$`);
    }),
);
export const region = type<string>("DNS label", "", "a DNS label of at most 46 characters", (given) =>
  /^[a-z0-9]([a-z0-9-]{0,44}[a-z0-9])?$/.test(given) ? given : undefined,
);

// --- addresses, ports, marks -------------------------------------------------------------------------------------
export const address = (version: IpVersion): ValueType<IpAddress | ""> =>
  type<IpAddress | "">(`IPv${version} address`, "", `an IPv${version} address`, (given) => {
    const found = tryParseAddress(given);
    return found !== undefined && ipVersion(found) === version ? found : undefined;
  });
export const cidrList = type<readonly Cidr[]>("CIDR list", [], "prefixes such as 10.0.0.0/8,fd00::/8", (given) =>
  each(given, tryParseCidr),
);
const readPort = (given: string): number | undefined =>
  /^\d{1,5}$/.test(given) && Number(given) <= 65535 ? Number(given) : undefined;
export const port = type("port", 0, "a port, 0 to 65535", (given) => {
  const value = readInteger(given);
  return value !== undefined && value >= 0 && value <= 65_535 ? value : undefined;
});

export interface FailsafePort {
  readonly protocol: "tcp" | "udp";
  /** Absent = anywhere. */
  readonly net?: Cidr;
  readonly port: number;
}
export const failsafePorts = type<readonly FailsafePort[]>(
  "port list",
  [],
  "ports such as 22, tcp:22, udp:10.0.0.0/8:53 or tcp:[fd00::/8]:22",
  (given) =>
    each(given, (item) => {
      const match = /^(?:(tcp|udp):)?(?:(?:\[([^\]]+)\]|([0-9./]+)):)?(\d+)$/i.exec(item);
      const number = match?.[4] === undefined ? undefined : readPort(match[4]);
      if (match === null || number === undefined) return undefined;
      const protocol = match[1]?.toLowerCase() === "udp" ? "udp" : "tcp";
      const netText = match[2] ?? match[3];
      if (netText === undefined) return { protocol, port: number } as const;
      const net = match[1] === undefined ? undefined : tryParseCidr(netText);
      return net === undefined ? undefined : ({ protocol, net, port: number } as const);
    }),
);
export interface PortSpan {
  readonly min: number;
  readonly max: number;
}
function readSpan(given: string): PortSpan | undefined {
  const match = /^(\d+)(?::(\d+))?$/.exec(given);
  const min = match?.[1] === undefined ? undefined : readPort(match[1]);
  const max = match?.[2] === undefined ? min : readPort(match[2]);
  return min === undefined || max === undefined || max < min ? undefined : { min, max };
}
export const portRange = type<PortSpan | undefined>("port range", undefined, "a range such as 1000:2000", readSpan);
export const portRanges = type<readonly PortSpan[]>("port ranges", [], "ranges such as 30000:32767", (given) =>
  each(given, readSpan),
);
export const markMask = type("mark mask", 0, "a 32-bit mask with at least two bits set", (given) => {
  const value = /^\d/.test(given) ? readInteger(given) : undefined;
  if (value === undefined) return undefined;
  const bits = value <= 0xffffffff ? value.toString(2).replaceAll("0", "").length : 0;
  return bits >= 2 ? value : undefined;
});
export const dscp = type("DSCP value", 0, "a DSCP value, 0 to 63 or a name such as EF", (given) => parseDscp(given));

export interface TableRange {
  readonly min: number;
  readonly max: number;
}
const readTables = (given: string, least: number, most: number): TableRange | undefined => {
  const match = /^(\d+)-(\d+)$/.exec(given);
  if (match === null) return undefined;
  const [min, max] = [Number(match[1]), Number(match[2])];
  return min >= least && max <= most && min <= max ? { min, max } : undefined;
};
export const routeTableRange = type<TableRange | undefined>("table range", undefined, "tables such as 1-250", (given) =>
  readTables(given, 1, 250),
);
const MOST_TABLES = 65535;
export const routeTableRanges = type<readonly TableRange[]>(
  "table ranges",
  [],
  "tables such as 1-250,1000-2000, at most 65535 in all",
  (given) => {
    const list = each(given, (item) => readTables(item, 1, 0xffffffff));
    const count = (list ?? []).reduce((sum, { min, max }) => sum + max - min + 1, 0);
    return count <= MOST_TABLES ? list : undefined;
  },
);
