// Prints the result of `get` in the requested format.
import { readFileSync } from "node:fs";
import type { UnreadableEntry } from "../../datastore/index.ts";
import { formatTable } from "../../lib/terminal/table.ts";
import {
  API_VERSION,
  type CellContext,
  loadSchemas,
  type Resource,
  tableOf,
  UnreadableValue,
} from "../../model/index.ts";
import { UsageError } from "../../lib/command-line/usage-error.ts";
import { Failure } from "../command-line/failure.ts";
import { isNamespaced, type ManagedKind } from "../resources/kinds.ts";
import { readableOnly, unreadable } from "../resources/readable-resources.ts";
import { toJson } from "./json.ts";
import { toYaml } from "./yaml.ts";

export type Format =
  | { readonly type: "yaml" | "json" }
  | { readonly type: "table"; readonly columns: "short" | "wide" | readonly string[] }
  | { readonly type: "template"; readonly source: string };

/** One result: a single resource, or all resources of a kind. */
export type Found =
  | { readonly type: "one"; readonly kind: ManagedKind; readonly resource: Resource }
  | { readonly type: "list"; readonly kind: ManagedKind; readonly list: FoundList };
interface FoundList {
  readonly items: readonly Resource[];
  readonly revision: string;
}

/** @param text the value of `--output` */
export function parseFormat(text: string): Format {
  const equals = text.indexOf("=");
  const [name, value] = equals < 0 ? [text, ""] : [text.slice(0, equals), text.slice(equals + 1)];
  switch (name) {
    case "yaml":
    case "yml":
      return { type: "yaml" };
    case "json":
      return { type: "json" };
    case "ps":
      return { type: "table", columns: "short" };
    case "wide":
      return { type: "table", columns: "wide" };
    case "custom-columns":
      if (value === "") throw new Failure("need to specify at least one column");
      return { type: "table", columns: value.split(",") };
    case "go-template":
      if (value === "") throw new Failure("need to specify a template");
      return { type: "template", source: value };
    case "go-template-file":
      if (value === "") throw new Failure("need to specify a template file");
      return { type: "template", source: readTemplate(value) };
    default:
      throw new UsageError(
        `unrecognized output format '${text}'; supported formats are ps, wide, custom-columns=, yaml, json, go-template=, go-template-file=`,
      );
  }
}

function readTemplate(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new Failure(`open ${file}: ${code === "ENOENT" ? "no such file or directory" : code}`, { cause: error });
  }
}

export interface PrintOptions {
  /** Whether tables of namespaced kinds have a namespace column. */
  readonly showNamespace: boolean;
  /** Returns the AS number of nodes that do not set one. Called only if a cell needs it. */
  readonly defaultAsNumber: () => Promise<number | "unknown">;
  readonly emphasize: (heading: string) => string;
  /** Called for resources that are skipped because their fields do not have the types of their kind. */
  readonly onUnreadable: (answer: Found["type"], error: UnreadableEntry) => void;
}

export async function print(found: readonly Found[], format: Format, options: PrintOptions): Promise<string> {
  switch (format.type) {
    case "yaml":
      return toYaml(await documentOf(await readableOf(found, options)));
    case "json":
      return toJson(await documentOf(await readableOf(found, options)));
    case "table": {
      const tables: string[] = [];
      for (const answer of found) tables.push(await table(answer, format.columns, options));
      return tables.join("");
    }
    default:
      return template(found, format.source, options);
  }
}

/** Returns a single result as an object, several as a list, and none as null. */
export async function documentOf(found: readonly Found[]): Promise<unknown> {
  const documents: unknown[] = [];
  for (const answer of found) {
    const normalize = await normalizer(answer.kind);
    const one = (resource: Resource) => inOrder(normalize(resource));
    documents.push(answer.type === "one" ? one(answer.resource) : listDocument(answer.kind, answer.list, one));
  }
  return documents.length === 0 ? null : documents.length === 1 ? documents[0] : documents;
}

function listDocument(kind: ManagedKind, list: FoundList, one: (resource: Resource) => unknown): unknown {
  return {
    kind: `${kind}List`,
    apiVersion: API_VERSION,
    metadata: { resourceVersion: list.revision },
    items: list.items.map(one),
  };
}

/** Removes resources whose fields do not have the types of their kind. */
async function readableOf(found: readonly Found[], { onUnreadable }: PrintOptions): Promise<readonly Found[]> {
  const result: Found[] = [];
  for (const answer of found) {
    const resources = answer.type === "list" ? answer.list.items : [answer.resource];
    const items = await readableOnly(answer.kind, resources, (error) => onUnreadable(answer.type, error));
    if (answer.type === "list") result.push({ ...answer, list: { ...answer.list, items } });
    else if (items.length > 0) result.push(answer);
  }
  return result;
}

/**
 * Returns a function that removes fields with zero values that other programs store, such as `calicoVersion: ""`. A resource
 * that cannot be decoded is not changed.
 */
async function normalizer(kind: ManagedKind): Promise<(resource: Resource) => Resource> {
  const { loadSchema } = await loadSchemas();
  const schema = await loadSchema(kind);
  return (resource) => {
    const decoded = schema.decode(resource);
    if (!decoded.ok) return resource;
    return resource.status === undefined ? decoded.resource : { ...decoded.resource, status: resource.status };
  };
}

/** Returns the fields in the usual order of Kubernetes tools. */
function inOrder(resource: Resource): unknown {
  const { kind, apiVersion, metadata, spec, status } = resource;
  const { name, generateName, namespace, uid, resourceVersion, generation, creationTimestamp, ...others } = metadata;
  return {
    kind,
    apiVersion,
    metadata: { name, generateName, namespace, uid, resourceVersion, generation, creationTimestamp, ...others },
    spec,
    status,
  };
}

async function table(
  answer: Found,
  requested: "short" | "wide" | readonly string[],
  options: PrintOptions,
): Promise<string> {
  const { kind } = answer;
  const known = tableOf(kind);
  if (known === undefined) throw new Failure(`there is no table for ${kind}; use -o yaml or -o json`);
  const columns = new Map(known.columns.map((column) => [column.heading, column]));
  const named = typeof requested === "string" ? known[requested] : requested;
  const headings =
    typeof requested === "string" && options.showNamespace && isNamespaced(kind) ? ["NAMESPACE", ...named] : named;
  const chosen = headings.map((heading) => {
    const column = columns.get(heading);
    if (column !== undefined) return column;
    throw new Failure(`Unknown heading ${heading}, valid values are: ${[...columns.keys()].join(", ")}`);
  });
  const context: CellContext =
    headings.includes("ASN") && kind === "Node" ? { defaultAsNumber: await options.defaultAsNumber() } : {};
  const resources = answer.type === "one" ? [answer.resource] : answer.list.items;
  const rows: string[][] = [];
  for (const resource of resources)
    try {
      rows.push(chosen.map((column) => column.cell(resource, context)));
    } catch (error) {
      if (!(error instanceof UnreadableValue)) throw error;
      options.onUnreadable(answer.type, unreadable(resource, error.message));
    }
  if (answer.type === "one" && rows.length === 0) return "";
  return `${formatTable(headings, rows, options.emphasize)}\n`;
}

async function template(found: readonly Found[], source: string, options: PrintOptions): Promise<string> {
  const { compileTemplate } = await import("../template/execute.ts");
  const { TemplateFault } = await import("../template/lexer.ts");
  const { shapesOf } = await import("../template/shapes.ts");
  const { wrap } = await import("../template/value.ts");
  const asNumber = source.includes("config") ? await options.defaultAsNumber() : 0;
  const config = (name: unknown) => {
    if (String(name).toLowerCase() === "asnumber") return String(asNumber);
    throw new Error(`unhandled config type ${String(name)}, want asnumber`);
  };
  const data = [];
  for (const answer of await readableOf(found, options)) {
    const shapes = await shapesOf(answer.kind);
    data.push(
      answer.type === "one"
        ? wrap(answer.resource, shapes.one)
        : wrap(
            listDocument(answer.kind, answer.list, (item) => item),
            shapes.list,
          ),
    );
  }
  try {
    return compileTemplate("get", source, { config }).execute(data);
  } catch (error) {
    if (error instanceof TemplateFault) throw new Failure(error.message, { cause: error });
    throw error;
  }
}
