package remote

import (
	"net/url"
	"slices"
	"strings"
)

// stableQuery is the query without the parameters that carry credentials and change when they are renewed,
// sorted by name.
func stableQuery(query string) string {
	type parameter struct{ name, value string }
	var list []parameter
	isSAS := false
	for part := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(part, "=")
		p := parameter{unescape(name), unescape(value)}
		isSAS = isSAS || p.name == "sig"
		if part != "" && !isCredential(p.name) {
			list = append(list, p)
		}
	}
	if isSAS {
		list = slices.DeleteFunc(list, func(p parameter) bool { return slices.Contains(sasParameters, p.name) })
	}
	slices.SortStableFunc(list, func(a, b parameter) int { return strings.Compare(a.name, b.name) })
	parts := make([]string, len(list))
	for i, p := range list {
		parts[i] = url.QueryEscape(p.name) + "=" + url.QueryEscape(p.value)
	}
	return strings.Join(parts, "&")
}

// unescape decodes a name or a value of a query. One that is not valid stays as it is.
func unescape(s string) string {
	if plain, err := url.QueryUnescape(s); err == nil {
		return plain
	}
	return s
}

// isCredential reports whether a parameter of a query is part of a signature, or is a token.
func isCredential(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc(credentialPrefixes, func(p string) bool { return strings.HasPrefix(name, p) }) || slices.Contains(credentials, name)
}

// credentialPrefixes are the beginnings of the parameters of signed URLs: of S3 and stores that speak its
// protocol, Google Cloud Storage, Alibaba's OSS and Tencent's COS.
var credentialPrefixes = []string{"x-amz-", "x-goog-", "x-oss-", "q-sign-", "q-ak", "q-key-time", "q-header-list", "q-url-param-list", "q-signature"}

// credentials are other parameters of signed URLs, in lower case: of S3's second version, Google's, Alibaba's,
// CloudFront, Azure, Akamai, and tokens by their usual names.
var credentials = []string{
	"signature", "expires", "awsaccesskeyid", "googleaccessid", "ossaccesskeyid", "security-token",
	"policy", "key-pair-id", "hash-algorithm", "sig", "hdnts", "hdnea", "__token__", "__gda__",
	"token", "access_token", "auth_token", "id_token", "api_key", "apikey", "auth", "authorization", "sign", "exp", "expiry",
}

// sasParameters are the parameters of a shared access signature of Azure beside sig. They are short words, so
// they count as credentials only beside sig.
var sasParameters = []string{
	"sv", "st", "se", "sr", "sp", "si", "ss", "srt", "sip", "spr", "sdd", "ses",
	"skoid", "sktid", "skt", "ske", "sks", "skv", "saoid", "suoid", "scid",
}
