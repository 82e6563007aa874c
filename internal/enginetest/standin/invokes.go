package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// newAccount are the quotas of an account that has asked for nothing, by
// "service/code".
var newAccount = map[string]float64{
	"lambda/L-B99A9384": 1000,
	"states/L-AD9B4E93": 5000,
	"states/L-137B3F65": 5000,
	"ses/L-CDEF9B6B":    1,
	"ses/L-804C8AE8":    200,
}

// invoke answers a function of the provider.
func (s *standin) invoke(token string, args map[string]any) (map[string]any, error) {
	s.mu.Lock()
	region := s.region
	s.mu.Unlock()
	switch token {
	case "aws:index/getCallerIdentity:getCallerIdentity":
		return map[string]any{"id": account, "accountId": account, "userId": "AIDAEXAMPLE", "arn": "arn:aws:iam::" + account + ":user/standin"}, nil
	case "aws:index/getRegion:getRegion":
		if name, ok := args["name"].(string); ok {
			region = name
		}
		return map[string]any{"id": region, "name": region, "description": region, "endpoint": "ec2." + region + ".amazonaws.com"}, nil
	case "aws:index/getPartition:getPartition":
		return map[string]any{"id": "aws", "partition": "aws", "dnsSuffix": "amazonaws.com", "reverseDnsPrefix": "com.amazonaws"}, nil
	case "aws:index/getAvailabilityZones:getAvailabilityZones":
		names := []any{region + "a", region + "b", region + "c"}
		return map[string]any{"id": region, "names": names, "zoneIds": names, "groupNames": []any{region}}, nil
	case "aws:iam/getPolicyDocument:getPolicyDocument":
		return policyDocument(args)
	case "aws:servicequotas/getServiceQuota:getServiceQuota":
		return serviceQuota(args, region)
	case "aws:ecr/getAuthorizationToken:getAuthorizationToken":
		return map[string]any{
			"id": region, "userName": "AWS", "password": "standin-password", "expiresAt": "2026-01-02T03:04:05Z",
			"authorizationToken": base64.StdEncoding.EncodeToString([]byte("AWS:standin-password")),
			"proxyEndpoint":      "https://" + account + ".dkr.ecr." + region + ".amazonaws.com",
		}, nil
	}
	return nil, status.Errorf(codes.Unimplemented, "the stand-in does not know the function %s", token)
}

func serviceQuota(args map[string]any, region string) (map[string]any, error) {
	service, _ := args["serviceCode"].(string)
	code, _ := args["quotaCode"].(string)
	given := map[string]float64{}
	switch text := os.Getenv("STANDIN_QUOTAS"); text {
	case "":
	case "denied":
		return nil, status.Errorf(codes.PermissionDenied, "reading Service Quotas Service Quota (%s/%s): operation error Service Quotas: GetServiceQuota, "+
			"https response error StatusCode: 400, AccessDeniedException: User: arn:aws:iam::%s:user/standin is not authorized to perform: servicequotas:GetServiceQuota", service, code, account)
	default:
		if err := json.Unmarshal([]byte(text), &given); err != nil {
			return nil, fmt.Errorf("STANDIN_QUOTAS: %w", err)
		}
	}
	id := service + "/" + code
	standard, isKnown := newAccount[id]
	value, isGiven := given[id]
	if !isKnown && !isGiven {
		return nil, status.Errorf(codes.NotFound, "reading Service Quotas Service Quota (%s): couldn't find resource", id)
	}
	if !isGiven {
		value = standard
	}
	return map[string]any{
		"id": "arn:aws:servicequotas:" + region + ":" + account + ":" + id, "arn": "arn:aws:servicequotas:" + region + ":" + account + ":" + id,
		"serviceCode": service, "quotaCode": code, "quotaName": code, "serviceName": service, "adjustable": true, "globalQuota": false,
		"defaultValue": standard, "value": value, "usageMetrics": []any{},
	}, nil
}

// policyDocument writes the JSON that aws.iam.getPolicyDocument does.
func policyDocument(args map[string]any) (map[string]any, error) {
	one := func(list any) any {
		if l, ok := list.([]any); ok && len(l) == 1 {
			return l[0]
		}
		return list
	}
	statements := []any{}
	for _, element := range asList(args["statements"]) {
		s, _ := element.(map[string]any)
		statement := map[string]any{"Effect": "Allow"}
		for from, to := range map[string]string{"sid": "Sid", "effect": "Effect", "actions": "Action", "notActions": "NotAction",
			"resources": "Resource", "notResources": "NotResource"} {
			if value := s[from]; value != nil {
				statement[to] = one(value)
			}
		}
		for from, to := range map[string]string{"principals": "Principal", "notPrincipals": "NotPrincipal"} {
			principals := map[string]any{}
			for _, p := range asList(s[from]) {
				p, _ := p.(map[string]any)
				typ, _ := p["type"].(string)
				if typ == "*" {
					statement[to] = "*"
					continue
				}
				principals[typ] = one(p["identifiers"])
			}
			if len(principals) > 0 {
				statement[to] = principals
			}
		}
		conditions := map[string]any{}
		for _, c := range asList(s["conditions"]) {
			c, _ := c.(map[string]any)
			test, _ := c["test"].(string)
			variable, _ := c["variable"].(string)
			if conditions[test] == nil {
				conditions[test] = map[string]any{}
			}
			conditions[test].(map[string]any)[variable] = one(c["values"])
		}
		if len(conditions) > 0 {
			statement["Condition"] = conditions
		}
		statements = append(statements, statement)
	}
	document := map[string]any{"Version": "2012-10-17", "Statement": statements}
	if id, ok := args["policyId"].(string); ok {
		document["Id"] = id
	}
	text, err := json.MarshalIndent(document, "", "  ")
	if err != nil {
		return nil, err
	}
	answer := map[string]any{"id": "1", "json": string(text), "minifiedJson": string(text)}
	for _, key := range slices.Sorted(maps.Keys(args)) {
		if !strings.HasPrefix(key, "statement") {
			continue
		}
		answer[key] = args[key]
	}
	return answer, nil
}
