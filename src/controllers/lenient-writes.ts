// Writes objects even if validation rejects them. A valid object is written with its defaults. An object that validation
// rejects is written unchanged: Kubernetes allows longer names and labels than Calico, and a user may have left an invalid value
// in a field that the controllers do not change.
import { type Client, ValidationFailed } from "../datastore/index.ts";
import type { Resource } from "../model/index.ts";

export const createLeniently = (client: Client, resource: Resource, signal: AbortSignal): Promise<unknown> =>
  leniently((trusted) => client.create(resource, { signal, trusted }));

export const updateLeniently = (client: Client, resource: Resource, signal: AbortSignal): Promise<unknown> =>
  leniently((trusted) => client.update(resource, { signal, trusted }));

async function leniently<T>(write: (trusted: boolean) => Promise<T>): Promise<T> {
  try {
    return await write(false);
  } catch (error) {
    if (!(error instanceof ValidationFailed)) throw error;
    return write(true);
  }
}
