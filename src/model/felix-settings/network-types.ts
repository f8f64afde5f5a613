// Defines types of settings: hosts, interfaces, addresses, ports, packet marks, routing tables.
import {
  type Cidr,
  type IpAddress,
  type IpVersion,
  ipVersion,
  tryParseAddress,
  tryParseCidr,
} from "../../lib/ip/ip.ts";
import { isDnsLabel, isMac } from "../validation/formats.ts";
import { parseDscp } from "../validation/numbers.ts";
import { readInteger } from "./scalar-types.ts";
import { fieldText, type FieldSchemas, omitEmpty, valueType, withSchema } from "./value-type.ts";

/** Parses each item of a comma-separated list; undefined if one is invalid. */
function each<T>(text: string, read: (item: string) => T | undefined): readonly T[] | undefined {
  const values: T[] = [];
  for (const item of text.split(",").map((part) => part.trim())) {
    const value = item === "" ? undefined : read(item);
    if (value !== undefined) values.push(value);
    else if (item !== "") return undefined;
  }
  return values;
}

/** A type whose field in the resource is text that only Felix checks. */
const uncheckedText = <T>(options: Omit<Parameters<typeof valueType<T, never>>[0], "item">) =>
  omitEmpty(valueType({ ...options, item: (f) => f.text() }));

// --- hosts -------------------------------------------------------------------------------------------------------
const isHostname = (text: string): boolean => /^[A-Za-z0-9_.-]+$/.test(text);
export const hostname = uncheckedText<string>({
  name: "host name",
  zero: "",
  wanted: "a host name",
  read: (given) => (isHostname(given) ? given : undefined),
});
export const hostAddress = withSchema(
  uncheckedText<string>({
    name: "host address",
    zero: "",
    wanted: "a host name or address",
    read: (given) => (isHostname(given) || tryParseAddress(given) !== undefined ? given : undefined),
  }),
  (f) => f.pointer(f.text()),
);
export const hostAndPort = uncheckedText<string>({
  name: "host:port",
  zero: "",
  wanted: "an address such as 10.0.0.1:2379 or [fd00::1]:2379",
  read: (given) => (/^([A-Za-z0-9_.-]+|\[[0-9a-fA-F:.]+\]):\d{1,5}$/.test(given) ? given : undefined),
});
/** URLs of one scheme; each value ends with `/`. */
export const urls = uncheckedText<readonly string[]>({
  name: "URL list",
  zero: [],
  wanted: "URLs of one scheme without path",
  read: (given) => {
    const list = each(given, (item) => {
      const url = URL.canParse(item) ? new URL(item) : undefined;
      if (url === undefined || !/^https?:$/.test(url.protocol) || url.host === "") return undefined;
      if (url.pathname !== "/" || url.username !== "" || url.search !== "" || url.hash !== "") return undefined;
      return `${url.protocol}//${item.replace(/^https?:\/\//, "").replace(/\/$/, "")}/`;
    });
    const schemes = new Set(list?.map((url) => url.split(":")[0]));
    return schemes.size === 1 ? list : undefined;
  },
});
const isRegion = (text: string): boolean => isDnsLabel(text) && text.length <= 46;
export const region = omitEmpty(
  valueType<string, ReturnType<FieldSchemas["matching"]>>({
    name: "DNS label",
    zero: "",
    wanted: "a DNS label of at most 46 characters",
    read: (given) => (isRegion(given) ? given : undefined),
    item: (f) => f.matching(isRegion, "want at most 46 of a-z, 0-9 and -"),
  }),
);

// --- interfaces --------------------------------------------------------------------------------------------------
const isInterfaceText = (text: string): boolean => /^[A-Za-z0-9_.+-]{1,15}$/.test(text);
export const interfaceName = omitEmpty(
  valueType<string, ReturnType<FieldSchemas["matching"]>>({
    name: "interface",
    zero: "",
    wanted: "an interface name of at most 15 characters",
    read: (given) => (isInterfaceText(given) ? given : undefined),
    item: (f) => f.interfaceName(),
  }),
);
/** The schema of an interface name that may end with `+`, which matches any suffix as in iptables. */
export const interfaceFilter = (f: FieldSchemas) =>
  f.matching((value) => /^[a-zA-Z0-9:._+-]{1,15}$/.test(value), "want an interface name, which may end with +");
export const interfacePrefixes = uncheckedText<readonly string[]>({
  name: "interface prefixes",
  zero: [],
  wanted: "interface prefixes such as cali,tap",
  read: (given) => {
    const list = each(given, (item) => (/^[A-Za-z0-9_.-]{1,15}$/.test(item) ? item : undefined));
    return list?.length === 0 ? undefined : list;
  },
});
/** `/…/` is a regular expression; any other item is a name, or a prefix if it ends with `+` as in iptables. */
export const interfacePatterns = uncheckedText<readonly RegExp[]>({
  name: "interface list, /regular expressions/ too",
  zero: [],
  wanted: "interfaces such as eth0,/^veth/",
  read: (given) =>
    each(given, (item) => {
      const pattern = /^\/(.+)\/$/.exec(item)?.[1];
      try {
        if (pattern !== undefined) return new RegExp(pattern);
      } catch {
        return undefined;
      }
      if (!isInterfaceText(item)) return undefined;
      const name = RegExp.escape(item.replace(/\+$/, ""));
      return new RegExp(item.endsWith("+") ? `^${name}` : `^${name}$`);
    }),
});
export const macAddress = uncheckedText<string>({
  name: "MAC address",
  zero: "",
  wanted: "a MAC address such as 66:a1:b2:c3:d4:e5",
  read: (given) => (isMac(given) ? given : undefined),
});

// --- addresses ---------------------------------------------------------------------------------------------------
export const address = (version: IpVersion) =>
  omitEmpty(
    valueType<IpAddress | "", ReturnType<FieldSchemas["address"]>>({
      name: `IPv${version} address`,
      zero: "",
      wanted: `an IPv${version} address`,
      read: (given) => {
        const found = tryParseAddress(given);
        return found !== undefined && ipVersion(found) === version ? found : undefined;
      },
      item: (f) => f.address(version),
    }),
  );
export const cidrList = valueType({
  name: "CIDR list",
  zero: [] as readonly Cidr[],
  wanted: "prefixes such as 10.0.0.0/8,fd00::/8",
  read: (given) => each(given, tryParseCidr),
  item: (f) => f.list(f.network()),
});

// --- ports -------------------------------------------------------------------------------------------------------
const readPort = (given: string): number | undefined =>
  /^\d{1,5}$/.test(given) && Number(given) <= 65535 ? Number(given) : undefined;
export const port = valueType({
  name: "port",
  zero: 0,
  wanted: "a port, 0 to 65535",
  read: (given) => {
    const value = readInteger(given);
    return value !== undefined && value >= 0 && value <= 65_535 ? value : undefined;
  },
  item: (f) => f.int64(),
});

/** A port of a host that policy never closes. */
export interface FailsafePort {
  readonly protocol: "tcp" | "udp";
  /** Addresses of the other end; absent means all. */
  readonly net?: Cidr;
  readonly port: number;
}
/** Parses `22`, `tcp:22`, `udp:10.0.0.0/8:53` or `tcp:[fd00::/8]:22`. */
function readFailsafePort(text: string): FailsafePort | undefined {
  const match = /^(?:(tcp|udp):)?(?:(?:\[([^\]]+)\]|([0-9./]+)):)?(\d+)$/i.exec(text);
  const number = match?.[4] === undefined ? undefined : readPort(match[4]);
  if (match === null || number === undefined) return undefined;
  const protocol = match[1]?.toLowerCase() === "udp" ? "udp" : "tcp";
  const netText = match[2] ?? match[3];
  if (netText === undefined) return { protocol, port: number };
  const net = match[1] === undefined ? undefined : tryParseCidr(netText);
  return net === undefined ? undefined : { protocol, net, port: number };
}
export const failsafePorts = valueType({
  name: "port list",
  zero: [] as readonly FailsafePort[],
  wanted: "ports such as 22, tcp:22, udp:10.0.0.0/8:53 or tcp:[fd00::/8]:22",
  read: (given) => each(given, readFailsafePort),
  item: (f) =>
    f.list(f.object({ protocol: f.field(f.text()), port: f.always(f.portNumber(), 0), net: f.field(f.text()) })),
  // An empty list closes all ports; other empty lists set nothing.
  toText: (value) => (Array.isArray(value) && value.length === 0 ? "none" : fieldText(value)),
});

/** A range of numbers, both ends included. */
export interface NumberRange {
  readonly min: number;
  readonly max: number;
}
function readPortRange(given: string): NumberRange | undefined {
  const match = /^(\d+)(?::(\d+))?$/.exec(given);
  const min = match?.[1] === undefined ? undefined : readPort(match[1]);
  const max = match?.[2] === undefined ? min : readPort(match[2]);
  return min === undefined || max === undefined || max < min ? undefined : { min, max };
}
export const portRange = valueType<NumberRange | undefined, ReturnType<FieldSchemas["port"]>>({
  name: "port range",
  zero: undefined,
  wanted: "a range such as 1000:2000",
  read: readPortRange,
  item: (f) => f.port(),
});
export const portRanges = valueType({
  name: "port ranges",
  zero: [] as readonly NumberRange[],
  wanted: "ranges such as 30000:32767",
  read: (given) => each(given, readPortRange),
  item: (f) => f.list(f.port(), 7),
});

// --- packet marks and routing tables -----------------------------------------------------------------------------
export const markMask = valueType({
  name: "mark mask",
  zero: 0,
  wanted: "a 32-bit mask with at least two bits set",
  read: (given) => {
    const value = /^\d/.test(given) ? readInteger(given) : undefined;
    if (value === undefined || value > 0xffffffff) return undefined;
    return value.toString(2).replaceAll("0", "").length >= 2 ? value : undefined;
  },
  item: (f) => f.uint32(),
});
export const dscp = valueType({
  name: "DSCP value",
  zero: 0,
  wanted: "a DSCP value, 0 to 63 or a name such as EF",
  read: parseDscp,
  item: (f) => f.dscp(),
});

function readTables(given: string, largest: number): NumberRange | undefined {
  const match = /^(\d+)-(\d+)$/.exec(given);
  if (match === null) return undefined;
  const [min, max] = [Number(match[1]), Number(match[2])];
  return min >= 1 && max <= largest && min <= max ? { min, max } : undefined;
}
const tableRangeField = (f: FieldSchemas) => f.object({ min: f.integer(), max: f.integer() });
export const routeTableRange = valueType<NumberRange | undefined, ReturnType<typeof tableRangeField>>({
  name: "table range",
  zero: undefined,
  wanted: "tables such as 1-250",
  read: (given) => readTables(given, 250),
  item: tableRangeField,
});
const MAX_TABLES = 65535;
export const routeTableRanges = valueType({
  name: "table ranges",
  zero: [] as readonly NumberRange[],
  wanted: `tables such as 1-250,1000-2000, at most ${MAX_TABLES} in all`,
  read: (given) => {
    const list = each(given, (item) => readTables(item, 0xffffffff));
    const count = (list ?? []).reduce((sum, { min, max }) => sum + max - min + 1, 0);
    return count <= MAX_TABLES ? list : undefined;
  },
  item: (f) => f.list(tableRangeField(f)),
});
