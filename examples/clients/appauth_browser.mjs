// A client that runs in the browser, with AppAuth-JS. It has no secret and uses PKCE.
// `isValid()` subtracts ten minutes, the whole life of an access token: call `isValid(-30)` instead. The library does not
// check `iss`.
import * as appauth from "@openid/appauth";

appauth.setFlag("IS_LOG", false); // without it, verifier and code are written to the console
class QueryStrings extends appauth.BasicQueryStringUtils {
  parse = (location) => this.parseQueryString(location.search); // without it, the library reads the fragment
}
const service = new appauth.AuthorizationServiceConfiguration({
  authorization_endpoint: "http://127.0.0.1:8000/authorization/",
  token_endpoint: "http://127.0.0.1:8000/oauth2/v1/token",
  revocation_endpoint: "http://127.0.0.1:8000/oauth2/v1/revoke",
});
const client = { client_id: "phone-app", redirect_uri: "http://127.0.0.1:9000/callback" };
const scope = "realm:main role:enduser";
const pages = new appauth.RedirectRequestHandler(undefined, new QueryStrings());
const requests = new appauth.BaseTokenRequestHandler(new appauth.FetchRequestor());
const requestTokens = (grant) => requests.performTokenRequest(service, new appauth.TokenRequest({ ...client, ...grant }));

export function logIn() {
  const request = new appauth.AuthorizationRequest({ ...client, scope, response_type: "code" });
  pages.performAuthorizationRequest(service, request); // leaves the page
}

export async function callback() {
  const { request, response } = await pages.completeAuthorizationRequest();
  const extras = { code_verifier: request.internal.code_verifier };
  const tokens = await requestTokens({ grant_type: "authorization_code", code: response.code, extras });
  return await requestTokens({ grant_type: "refresh_token", refresh_token: tokens.refreshToken });
}
export async function getUser({ accessToken }) {
  const headers = { Authorization: `Bearer ${accessToken}` };
  return await (await fetch("http://127.0.0.1:8000/oauth2/v1/userinfo", { headers })).json(); // .sub
}
export const logOut = ({ refreshToken: token }) =>
  requests.performRevokeTokenRequest(service, new appauth.RevokeTokenRequest({ token, client_id: client.client_id }));
