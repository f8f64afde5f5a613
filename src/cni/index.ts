// Exports what other modules use: the CNI service, and the renewal of the plugin's token.
export { startCniService, withServiceRates } from "./service/service.ts";
export { keepTokenFresh } from "./kubernetes/token-refresh.ts";
