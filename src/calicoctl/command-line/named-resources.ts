// Resources named on the command line: a kind and names. Only kind, name and namespace are known of them.
import { API_VERSION, type Resource } from "../../model/index.ts";
import { UsageError } from "../../lib/command-line/usage-error.ts";
import { Failure } from "./failure.ts";
import { kindCalled, kindNear, MANAGED_KINDS, type ManagedKind } from "../resources/kinds.ts";

export interface NamedResource {
  readonly kind: ManagedKind;
  readonly resource: Resource;
}

export class UnknownKind extends Failure {}

export function kindFromWord(word: string): ManagedKind {
  const kind = kindCalled(word);
  if (kind === undefined) {
    const near = kindNear(word);
    const advice = near === undefined ? `there are ${MANAGED_KINDS.join(", ")}` : `did you mean ${near}?`;
    throw new UnknownKind(`resource type '${word}' is not supported; ${advice}`);
  }
  return kind;
}

export function namedResource(kind: ManagedKind, name: string, namespace?: string): Resource {
  const metadata = namespace === undefined ? { name } : { name, namespace };
  return { apiVersion: API_VERSION, kind, metadata, spec: {} };
}

/** @param options whether a kind without names is one resource whose name is empty, or none */
export function resourcesFromWords(
  { KIND, NAME }: { readonly KIND: string | undefined; readonly NAME: readonly string[] },
  options: { readonly atLeastOne: boolean },
): NamedResource[] {
  if (KIND === undefined) throw new UsageError("KIND or --filename is missing");
  const kind = kindFromWord(KIND);
  const names = [...NAME];
  if (names.includes("")) throw new Failure("resource name must not be empty");
  if (names.length === 0 && options.atLeastOne) names.push("");
  return names.map((name) => ({ kind, resource: namedResource(kind, name) }));
}
