// Creates or updates Calico's custom resource definitions in an API server, and waits until each is served.
import { delay } from "../../lib/retry.ts";
import { loadCustomResourceDefinitions } from "../../model/index.ts";
import type { KubernetesConfig } from "../config.ts";
import { Unavailable } from "../errors.ts";
import { resolveAccess } from "./access.ts";
import { KubeApi, type KubeObject } from "./api-client.ts";
import { KubeStatusError } from "./status-error.ts";

const COLLECTION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const POLL_MS = 50;
const TIMEOUT_MS = 30_000;

interface Definition extends KubeObject {
  readonly status?: { readonly conditions?: readonly { readonly type: string; readonly status: string }[] };
}

export async function installDefinitions(config: KubernetesConfig, signal?: AbortSignal): Promise<void> {
  const api = new KubeApi(await resolveAccess(config, process.env), { qps: config.clientQps ?? 50 });
  try {
    const { CRD_KINDS, customResourceDefinition } = await loadCustomResourceDefinitions();
    const names: string[] = [];
    for (const kind of CRD_KINDS) {
      const definition = (await customResourceDefinition(kind)) as unknown as Definition;
      await put(api, definition, signal);
      names.push(definition.metadata.name);
    }
    for (const name of names) await untilServed(api, name, signal);
  } finally {
    api.close();
  }
}

async function put(api: KubeApi, definition: Definition, signal: AbortSignal | undefined): Promise<void> {
  const path = `${COLLECTION}/${definition.metadata.name}`;
  for (;;)
    try {
      await api.json({ method: "POST", path: COLLECTION, body: definition, signal });
      return;
    } catch (error) {
      if (!(error instanceof KubeStatusError) || error.reason !== "AlreadyExists") throw error;
      const current = await api.get<Definition>(path, { signal });
      const { resourceVersion = "" } = current.metadata;
      const body = { ...definition, metadata: { ...definition.metadata, resourceVersion } };
      try {
        await api.json({ method: "PUT", path, body, signal });
        return;
      } catch (conflict) {
        if (!(conflict instanceof KubeStatusError) || conflict.reason !== "Conflict") throw conflict;
      }
    }
}

async function untilServed(api: KubeApi, name: string, signal: AbortSignal | undefined): Promise<void> {
  for (const deadline = Date.now() + TIMEOUT_MS; ; ) {
    const { status } = await api.get<Definition>(`${COLLECTION}/${name}`, { signal });
    if (status?.conditions?.some((c) => c.type === "Established" && c.status === "True") === true) return;
    if (Date.now() > deadline)
      throw new Unavailable(api.endpoint, `${name} is not served after ${TIMEOUT_MS / 1000} s`);
    await delay(POLL_MS, signal);
  }
}
