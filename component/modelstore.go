package component

import (
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/datasync"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/ec2"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/efs"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/lambda"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/s3"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/briefing-swarm/briefing-swarm/plan"
)

// modelStore is a file system that holds the model, the network in which workers
// reach it, and the task that copies the model there out of the runs bucket.
type modelStore struct {
	network *network
	files   *efs.FileSystem
	access  *efs.AccessPoint
	copier  *datasync.Task
	// ready are the mount targets, without which no function can be created.
	ready []pulumi.Resource
}

// modelsPrefix is where the model is put into the runs bucket.
const modelsPrefix = "models/"

// mountPath is where workers see the file system. Lambda wants it below /mnt.
const mountPath = "/mnt/model"

// modelOwner is the user and group that everyone is on the file system.
const modelOwner = 1000

func (m *modelStore) path(file string) string { return mountPath + "/" + file }

// mount gives a function the file system.
func (m *modelStore) mount(args *lambda.FunctionArgs) {
	args.FileSystemConfig = lambda.FunctionFileSystemConfigArgs{Arn: m.access.Arn, LocalMountPath: pulumi.String(mountPath)}
	args.VpcConfig = lambda.FunctionVpcConfigArgs{SubnetIds: m.network.subnetIDs(), SecurityGroupIds: pulumi.StringArray{m.network.workers.ID()}}
}

// statements permit to mount the file system, and to be in the network.
func (m *modelStore) statements() []statement {
	return []statement{
		{
			actions: []string{"elasticfilesystem:ClientMount"}, resources: []pulumi.StringInput{m.files.Arn},
			condition: pulumi.Map{"StringEquals": pulumi.Map{"elasticfilesystem:AccessPointArn": m.access.Arn}},
		},
		// Lambda makes network interfaces for the function, whose names nobody knows
		// before.
		anywhere("ec2:CreateNetworkInterface", "ec2:DeleteNetworkInterface", "ec2:DescribeNetworkInterfaces", "ec2:DescribeSubnets"),
	}
}

// modelStore builds the file system, or nothing where the model is in the image.
func (s *swarm) modelStore(runs *s3.BucketV2) (*modelStore, error) {
	if s.ModelStore != plan.StoreEFS {
		return nil, nil
	}
	m := &modelStore{}
	var err error
	if m.network, err = s.network(); err != nil {
		return nil, err
	}
	m.files, err = efs.NewFileSystem(s.ctx, s.child("model"), &efs.FileSystemArgs{
		Encrypted: pulumi.Bool(true), PerformanceMode: pulumi.String("generalPurpose"),
		ThroughputMode: pulumi.String("elastic"), // thousands of workers read at once, and then none
		Tags:           s.tags(),
	}, s.opts()...)
	if err != nil {
		return nil, err
	}
	for i, subnet := range m.network.subnets {
		target, err := efs.NewMountTarget(s.ctx, s.child("model-mount-"+zoneLetters[i]), &efs.MountTargetArgs{
			FileSystemId: m.files.ID(), SubnetId: subnet.ID(), SecurityGroups: pulumi.StringArray{m.network.files.ID()},
		}, s.opts()...)
		if err != nil {
			return nil, err
		}
		m.ready = append(m.ready, target)
	}
	m.access, err = efs.NewAccessPoint(s.ctx, s.child("model-access"), &efs.AccessPointArgs{
		FileSystemId: m.files.ID(),
		PosixUser:    efs.AccessPointPosixUserArgs{Uid: pulumi.Int(modelOwner), Gid: pulumi.Int(modelOwner)},
		RootDirectory: efs.AccessPointRootDirectoryArgs{
			Path:         pulumi.String("/model"),
			CreationInfo: efs.AccessPointRootDirectoryCreationInfoArgs{OwnerUid: pulumi.Int(modelOwner), OwnerGid: pulumi.Int(modelOwner), Permissions: pulumi.String("0755")},
		},
		Tags: s.tags(),
	}, s.opts()...)
	if err != nil {
		return nil, err
	}
	m.copier, err = s.copier(m, runs)
	return m, err
}

// copier creates the DataSync task that copies what is below modelsPrefix to the
// file system when it is started.
func (s *swarm) copier(m *modelStore, runs *s3.BucketV2) (*datasync.Task, error) {
	role, permissions, err := s.role("model-copy", dataSyncService,
		allow([]string{"s3:GetBucketLocation", "s3:ListBucket"}, s.bucketArn(runs)),
		allow([]string{"s3:GetObject", "s3:GetObjectTagging", "s3:GetObjectVersion"}, below(s.bucketArn(runs), modelsPrefix)),
	)
	if err != nil {
		return nil, err
	}
	from, err := datasync.NewS3Location(s.ctx, s.child("model-copy-from"), &datasync.S3LocationArgs{
		S3BucketArn: runs.Arn, Subdirectory: pulumi.String("/" + modelsPrefix),
		S3Config: datasync.S3LocationS3ConfigArgs{BucketAccessRoleArn: role.Arn}, Tags: s.tags(),
	}, s.opts(pulumi.DependsOn([]pulumi.Resource{permissions}))...)
	if err != nil {
		return nil, err
	}
	to, err := datasync.NewEfsLocation(s.ctx, s.child("model-copy-to"), &datasync.EfsLocationArgs{
		EfsFileSystemArn: m.files.Arn, AccessPointArn: m.access.Arn, InTransitEncryption: pulumi.String("TLS1_2"),
		Ec2Config: datasync.EfsLocationEc2ConfigArgs{SubnetArn: m.network.subnets[0].Arn, SecurityGroupArns: pulumi.StringArray{m.network.workers.Arn}},
		Tags:      s.tags(),
	}, s.opts(pulumi.DependsOn(m.ready))...)
	if err != nil {
		return nil, err
	}
	return datasync.NewTask(s.ctx, s.child("model-copy"), &datasync.TaskArgs{
		SourceLocationArn: from.Arn, DestinationLocationArn: to.Arn,
		// The access point decides whose the files are.
		Options: datasync.TaskOptionsArgs{
			VerifyMode: pulumi.String("ONLY_FILES_TRANSFERRED"), PosixPermissions: pulumi.String("NONE"), Uid: pulumi.String("NONE"), Gid: pulumi.String("NONE"),
		},
		Tags: s.tags(),
	}, s.opts()...)
}

// network is two private subnets that reach the file system and AWS's services,
// and nothing else: there is no way to the internet.
type network struct {
	subnets        []*ec2.Subnet
	workers, files *ec2.SecurityGroup
}

// The network's addresses, and its zones by their letter in names.
const networkBlock = "10.42.0.0/16"

var (
	subnetBlocks = []string{"10.42.0.0/20", "10.42.16.0/20"}
	zoneLetters  = []string{"a", "b"}
)

const (
	httpsPort = 443
	nfsPort   = 2049
)

func (n *network) subnetIDs() pulumi.StringArray {
	ids := pulumi.StringArray{}
	for _, subnet := range n.subnets {
		ids = append(ids, subnet.ID())
	}
	return ids
}

func (s *swarm) network() (*network, error) {
	vpc, err := ec2.NewVpc(s.ctx, s.child("network"), &ec2.VpcArgs{
		CidrBlock: pulumi.String(networkBlock), EnableDnsSupport: pulumi.Bool(true), EnableDnsHostnames: pulumi.Bool(true), Tags: s.tags(),
	}, s.opts()...)
	if err != nil {
		return nil, err
	}
	n := &network{}
	zones := aws.GetAvailabilityZonesOutput(s.ctx, aws.GetAvailabilityZonesOutputArgs{State: pulumi.String("available")}, pulumi.Parent(s.parent))
	for i, block := range subnetBlocks {
		subnet, err := ec2.NewSubnet(s.ctx, s.child("network-"+zoneLetters[i]), &ec2.SubnetArgs{
			VpcId: vpc.ID(), CidrBlock: pulumi.String(block), AvailabilityZone: zones.Names().Index(pulumi.Int(i)), Tags: s.tags(),
		}, s.opts()...)
		if err != nil {
			return nil, err
		}
		n.subnets = append(n.subnets, subnet)
	}
	objects, err := s.gateway("s3", vpc)
	if err != nil {
		return nil, err
	}
	egress := ec2.SecurityGroupEgressArray{
		rule(nfsPort, "the file system"), rule(httpsPort, "endpoints of services"),
		ec2.SecurityGroupEgressArgs{Description: pulumi.String("S3"), Protocol: pulumi.String("tcp"), FromPort: pulumi.Int(httpsPort), ToPort: pulumi.Int(httpsPort), PrefixListIds: pulumi.StringArray{objects.PrefixListId}},
	}
	if s.Queue {
		tables, err := s.gateway("dynamodb", vpc)
		if err != nil {
			return nil, err
		}
		egress = append(egress, ec2.SecurityGroupEgressArgs{
			Description: pulumi.String("DynamoDB"), Protocol: pulumi.String("tcp"), FromPort: pulumi.Int(httpsPort), ToPort: pulumi.Int(httpsPort), PrefixListIds: pulumi.StringArray{tables.PrefixListId},
		})
	}
	n.workers, err = ec2.NewSecurityGroup(s.ctx, s.child("network-workers"), &ec2.SecurityGroupArgs{
		VpcId: vpc.ID(), Description: pulumi.String("workers of " + s.name), Egress: egress, Tags: s.tags(),
	}, s.opts()...)
	if err != nil {
		return nil, err
	}
	if n.files, err = s.serving("network-files", "file system of "+s.name, nfsPort, vpc, n.workers); err != nil {
		return nil, err
	}
	services, err := s.serving("network-services", "endpoints of "+s.name, httpsPort, vpc, n.workers)
	if err != nil {
		return nil, err
	}
	names := []string{"kinesis-firehose"}
	if s.Queue {
		names = append(names, "sqs") // dead letters
	}
	for _, name := range names {
		if _, err := ec2.NewVpcEndpoint(s.ctx, s.child("network-"+name), &ec2.VpcEndpointArgs{
			VpcId: vpc.ID(), ServiceName: s.serviceName(name), VpcEndpointType: pulumi.String("Interface"), PrivateDnsEnabled: pulumi.Bool(true),
			SubnetIds: n.subnetIDs(), SecurityGroupIds: pulumi.StringArray{services.ID()}, Tags: s.tags(),
		}, s.opts()...); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// rule lets workers reach a port within the network.
func rule(port int, what string) ec2.SecurityGroupEgressArgs {
	return ec2.SecurityGroupEgressArgs{
		Description: pulumi.String(what), Protocol: pulumi.String("tcp"), FromPort: pulumi.Int(port), ToPort: pulumi.Int(port),
		CidrBlocks: pulumi.StringArray{pulumi.String(networkBlock)},
	}
}

// serving creates a security group that workers may reach at a port.
func (s *swarm) serving(what, description string, port int, vpc *ec2.Vpc, workers *ec2.SecurityGroup) (*ec2.SecurityGroup, error) {
	return ec2.NewSecurityGroup(s.ctx, s.child(what), &ec2.SecurityGroupArgs{
		VpcId: vpc.ID(), Description: pulumi.String(description), Tags: s.tags(),
		Ingress: ec2.SecurityGroupIngressArray{ec2.SecurityGroupIngressArgs{
			Description: pulumi.String("workers"), Protocol: pulumi.String("tcp"), FromPort: pulumi.Int(port), ToPort: pulumi.Int(port),
			SecurityGroups: pulumi.StringArray{workers.ID()},
		}},
	}, s.opts()...)
}

// gateway creates the way to a service that costs nothing.
func (s *swarm) gateway(service string, vpc *ec2.Vpc) (*ec2.VpcEndpoint, error) {
	return ec2.NewVpcEndpoint(s.ctx, s.child("network-"+service), &ec2.VpcEndpointArgs{
		VpcId: vpc.ID(), ServiceName: s.serviceName(service), VpcEndpointType: pulumi.String("Gateway"),
		RouteTableIds: pulumi.StringArray{vpc.MainRouteTableId}, Tags: s.tags(),
	}, s.opts()...)
}

func (s *swarm) serviceName(service string) pulumi.String {
	return pulumi.String("com.amazonaws." + s.Region + "." + service)
}
